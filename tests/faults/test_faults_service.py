"""The example of a service among broken brokers, hostile publishers, full disks and wrong clocks: it goes on.

HYPOTHESIS_PROFILE=nightly kills a hundred processes and brokers, and sends half a million messages.
"""

import contextlib
import itertools
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from sensor_services import (
    Broker,
    Peer,
    Sent,
    Service,
    import_example,
    needs_broker,
    numbers_in,
    wait_until,
)

from streamkpca import Checkpointer, StreamingKernelPCA

pytestmark = pytest.mark.faults

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
SMALL = ("--atoms", "12", "--alarms-after", "1000000", "--every-messages", "50", "--every-seconds", "0.2")
PATIENCE = 1000.0 if NIGHTLY else 60.0
TOPICS = ["plant/a", "plant/b", "plant/c"]


def row(rng: random.Random) -> bytes:
    return json.dumps([round(rng.gauss(0.0, 1.0), 12) for _ in range(3)]).encode()


class Publishers:
    """Sensors that number their messages."""

    def __init__(self, topics: list[str], seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = dict.fromkeys(topics, 0)
        self.sent: list[Sent] = []

    def make(self, n: int) -> list[Sent]:
        made = []
        for _ in range(n):
            topic = self.rng.choice([*self.numbers])
            self.numbers[topic] += 1
            made.append(Sent(topic, self.numbers[topic], row(self.rng), None))
        self.sent += made
        return made


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path) as made:
        made.start()
        yield made


@pytest.fixture
def publisher(broker: Broker) -> Iterator[Peer]:
    with Peer(broker, "publisher", prepare=lambda client: client.max_inflight_messages_set(500)) as made:
        yield made


@pytest.fixture
def service(broker: Broker) -> Iterator[Service]:
    with Service(broker.folder, broker.port, *SMALL) as made:
        yield made


def begin(service: Service) -> None:
    """Start for the first time; before the first subscription the broker keeps nothing."""
    service.start()
    service.wait_for("subscribed")


def counts_of(saved: StreamingKernelPCA | None) -> Counter[str]:
    assert saved is not None
    return Counter(saved.extra_["counts"])


@needs_broker
def test_killed_while_publishers_begin_again_and_repeat_each_message_counts_once(
    publisher: Peer, service: Service
) -> None:
    n_kills = 100 if NIGHTLY else 6
    sensors, pause, n_restarts, n_repeated, n_sent = Publishers(TOPICS, 1), random.Random(2), 0, 0, 0
    begin(service)
    for _ in range(n_kills):
        made = sensors.make(120)
        publisher.publish(made)
        # As a publisher does that was not told that these had come.
        publisher.publish(made[-5:])
        n_repeated += 5
        sensors.numbers[topic := pause.choice(made).topic] = pause.choice([0, 0, -1])
        n_restarts += 1
        # Its rows are others, even if the broker sends the end of the last series again after them.
        first = Sent(topic, sensors.numbers[topic] + 1, row(pause), None)
        sensors.numbers[topic] += 1
        publisher.publish([first])
        n_sent += len(made) + 1
        time.sleep(pause.uniform(0.0, 0.3))
        service.kill()
        service.start()
    last = sensors.make(50)
    publisher.publish(last)
    n_sent += len(last)
    service.wait_for_messages(n_sent)
    service.stop()
    saved = service.saved()
    assert saved is not None
    assert saved.n_samples_seen_ == n_sent
    counts = counts_of(saved)
    assert counts["restart"] == n_restarts
    assert counts["repeated"] >= n_repeated
    assert counts["malformed"] == counts["bad number"] == counts["failed"] == 0
    print(f"{n_kills} kills, {n_restarts} restarts of publishers: {n_sent} messages count once; {dict(counts)}")


@needs_broker
@pytest.mark.parametrize("keeps", [True, False])
def test_a_killed_broker_loses_messages_and_repeats_them_but_none_counts_twice(tmp_path: Path, keeps: bool) -> None:
    n_kills = 40 if NIGHTLY else 3
    changes = ["autosave_interval 1"] if keeps else ["persistence false"]
    sensors, pause = Publishers(TOPICS, 3), random.Random(4)
    # The service waits so long before it acknowledges that the broker's old states hold much of what came.
    arguments = [*SMALL, "--every-messages", "400", "--every-seconds", "0.7"]
    with Broker(tmp_path, *changes) as broker, Service(tmp_path, broker.port, *arguments) as service:
        broker.start()
        begin(service)
        with Peer(broker, "publisher") as publisher:
            first = [Sent(topic, 0, row(pause), None) for topic in TOPICS]
            publisher.publish(first)
            service.wait_for_messages(len(first))
            for _ in range(n_kills):
                until = time.monotonic() + pause.uniform(0.5, 2.5)
                while time.monotonic() < until:
                    publisher.publish(sensors.make(20))
                    time.sleep(0.05)
                broker.kill()
                broker.start()
            wait_until(publisher.client.is_connected, "the publisher is back")
            wait_until(lambda: service.metrics()["streamkpca_connected"] == 1, "the service is back")
            # The last of each topic tells how many there were.
            for topic in TOPICS:
                sensors.numbers[topic] += 1
            last = [Sent(topic, number, row(pause), None) for topic, number in sensors.numbers.items()]
            time.sleep(1.5)
            for info in publisher.publish(last):
                info.wait_for_publish(30)
            n = sum(sensors.numbers.values()) + len(first)

            def accounted() -> float:
                found = service.metrics()
                return found["streamkpca_rows_total"] + found["streamkpca_missing"]

            wait_until(lambda: accounted() >= n, "all are there or missing")
            assert accounted() == n
        found = service.metrics()
        service.stop()
        saved = service.saved()
        assert saved is not None
        ends = {topic: numbers[:2] for topic, numbers in numbers_in(saved, TOPICS).items()}
        assert ends == {topic: [0, number] for topic, number in sensors.numbers.items()}
    assert found["streamkpca_restarts_total"] == found["streamkpca_jumps_total"] == 0
    lost, repeated = found["streamkpca_missing"], found["streamkpca_repeated_total"]
    print(
        f"{n_kills} kills of a broker {'with' if keeps else 'without'} memory: of {n}, {lost} lost, {repeated} repeated"
    )


@needs_broker
def test_a_flood_is_learned_and_counted(publisher: Peer, service: Service) -> None:
    n = 100_000 if NIGHTLY else 3000
    service.arguments += ["--every-messages", "1000", "--every-seconds", "5"]
    begin(service)
    sensors = Publishers([f"plant/{i}" for i in range(50)], 5)
    publisher.publish(sensors.make(n))
    service.wait_for_messages(n, seconds=PATIENCE)
    found = service.metrics()
    assert found["streamkpca_rows_total"] == n
    assert found["streamkpca_missing"] == found["streamkpca_repeated_total"] == found["streamkpca_restarts_total"] == 0
    assert "disconnected" not in service.text()
    service.stop()
    print(f"{n} messages at once: {found['streamkpca_message_seconds_sum'] / n * 1e6:.0f} us each")


@needs_broker
def test_gaps_in_very_many_topics_leave_a_state_that_is_saved_and_read(publisher: Peer, service: Service) -> None:
    n_topics = 12_000 if NIGHTLY else 300
    service.arguments += ["--every-messages", "1000"]
    begin(service)
    rng = random.Random(6)
    sent = [Sent(f"plant/{i}", number, row(rng), None) for i in range(n_topics) for number in (1, 1002, 10**18)]
    publisher.publish(sent)
    service.wait_for_messages(len(sent), seconds=PATIENCE)
    # After one huge number each, the numbers go on.
    more = [Sent(f"plant/{n_topics - 1 - i}", number, row(rng), None) for i in range(200) for number in (1003, 1004)]
    publisher.publish(more)
    service.wait_for_messages(len(sent) + len(more))
    service.stop()
    service.start()
    found = service.metrics()
    assert found["streamkpca_rows_total"] == len(sent) + len(more)
    assert found["streamkpca_failed_saves_total"] == found["streamkpca_repeated_total"] == 0
    assert found["streamkpca_jumps_total"] == n_topics
    assert found["streamkpca_topics"] == min(n_topics, 10_000)
    if n_topics <= 5000:
        assert found["streamkpca_missing"] == 1000 * n_topics
    sizes = [path.stat().st_size for path in Checkpointer(service.checkpoint).generations]
    print(
        f"{n_topics} topics with two gaps: {found['streamkpca_given_up_total/gaps']} gaps given up, {max(sizes)} bytes"
    )


def bent(rng: random.Random, number: int) -> tuple[bytes, list[tuple[str, str]], str]:
    """Return a payload, user properties, and what becomes of the message."""
    good = [("number", str(number))]
    payloads: list[Callable[[], bytes]] = [
        lambda: rng.randbytes(rng.randrange(200)),
        lambda: rng.randrange(1, 16_000) * b"[",
        lambda: b'{"a":' * rng.randrange(1, 3000),
        lambda: json.dumps([rng.random()] * rng.choice([0, 1, 2, 4, 600])).encode(),
        lambda: rng.choice(
            [b"[true, false, true]", b'["1", 2, 3]', b"[[1], 2, 3]", b"[1, 2, 3] x", b"[1,,2]", b'"123"']
        ),
        lambda: b"[1, 2, " + b"9" * rng.choice([400, 5000, 16_000]) + b"]",
        lambda: json.dumps([1, 2, 3]).encode(rng.choice(["utf-16", "utf-32"])) + b"\x00",
    ]
    kind = rng.randrange(12)
    if kind < 6:
        return rng.choice(payloads)(), good, "malformed"
    if kind == 6:
        value = rng.choice(["NaN", "Infinity", "-Infinity", "null"])
        return f"[1, {value}, 3]".encode(), good, "not finite"
    if kind == 7:
        text = rng.choice(["-1", "1.5", str(10**30), "true", "one", "", "\u0661", str(2**63), " 1", "0x1", "9" * 4000])
        return row(rng), [("number", text)], "bad number"
    if kind == 8:
        return row(rng), [*good, *good], "bad number"
    if kind == 9:
        # paho takes these for an error of the protocol; a broker would send the message again for ever.
        return row(rng), [("bom", "\ufeff"), ("\ufeff", "x"), *good], "row"
    if kind == 10:
        return row(rng), [*(("", "") for _ in range(1000)), *good], "row"
    return b"[1, 2, 3" + b" " * rng.choice([20_000, 1_000_000]) + b"]", good, "dropped"


@needs_broker
def test_bent_messages_are_counted_and_do_no_harm(publisher: Peer, service: Service) -> None:
    n = 20_000 if NIGHTLY else 300
    rng, number, expected = random.Random(7), 0, Counter[str]()
    begin(service)
    publisher.publish([Sent("plant/bent", 0, row(rng), None)])
    for i in range(n):
        payload, user, outcome = bent(rng, number + 1)
        number += outcome != "bad number"
        expected[outcome] += 1
        # Messages of quality 2 arrive with 1. Retained ones are like others.
        publisher.send("plant/bent", payload, *user, qos=rng.choice([1, 1, 2]), retain=i % 50 == 0)
    publisher.publish([Sent("plant/bent", number + 1, row(rng), None)])
    service.wait_for_messages(n + 2 - expected["dropped"], seconds=PATIENCE)
    found = service.metrics()
    assert found["streamkpca_rows_total"] == expected["row"] + expected["not finite"] + 2
    assert found["streamkpca_rejected_total/not finite"] == expected["not finite"]
    assert found["streamkpca_rejected_total/malformed"] == expected["malformed"]
    assert found["streamkpca_rejected_total/bad number"] == expected["bad number"]
    assert found["streamkpca_rejected_total/failed"] == 0
    assert found["streamkpca_missing"] == expected["dropped"]
    assert "disconnected" not in service.text()
    service.kill()
    service.start()
    service.wait_for("subscribed")
    publisher.publish([Sent("plant/bent", number + 2, row(rng), None)])
    service.wait_for_messages(n + 3 - expected["dropped"])
    # Not those either that the broker retained.
    assert service.n_handled() == n + 3 - expected["dropped"]
    assert min(expected.values()) > 10
    print(f"{n} bent messages: {dict(expected)}")


ODD = [
    "",
    " ",
    "ü",
    "温度",
    "🌡",
    "a b",
    '"',
    "'",
    "\\",
    "a" * 8000,
    ",[{" * 2000,
    "\ufeff",
    "$x",
    "%s%d",
    "{}",
    "\u202e",
]
ODD += ["é", "e\u0301", "</script>", "../../etc", "x'; --", "nan", "0", "\u200b", '","number":7', "${HOME}"]


@needs_broker
def test_topics_may_have_any_names(broker: Broker, publisher: Peer, service: Service) -> None:
    service.arguments += ["--alarms-after", "500", "--quantile", "0.5", "--topic", "plant/#"]
    begin(service)
    rng = random.Random(8)
    sent = [Sent(f"plant/{name}", number, row(rng), None) for number in range(65) for name in ODD]
    with Peer(broker, "listener", "alarms") as listener:
        publisher.publish(sent)
        service.wait_for_messages(len(sent))
        service.kill()
        service.start()
        service.wait_for_messages(len(sent))
        found = service.metrics()
        service.stop()
        alarms = [json.loads(alarm) for alarm in listener.received]
    assert found["streamkpca_rows_total"] == len(sent) > 1000
    assert found["streamkpca_topics"] == len(ODD)
    assert found["streamkpca_missing"] == found["streamkpca_restarts_total"] == 0
    assert {alarm["topic"] for alarm in alarms} == {f"plant/{name}" for name in ODD}
    assert numbers_in(service.saved() or StreamingKernelPCA(), [f"plant/{ODD[9]}"]) == {f"plant/{ODD[9]}": [0, 64]}
    print(f"{len(ODD)} odd names, {len(alarms)} alarms")


def with_short_patience(example: ModuleType) -> None:
    example.SHORT_SECONDS = 1.5


@needs_broker
def test_two_services_with_one_client_identifier_lose_nothing(
    broker: Broker, publisher: Peer, service: Service
) -> None:
    sensors = Publishers(TOPICS, 9)
    service.prepare = with_short_patience
    with Service(broker.folder, broker.port, *SMALL, name="other") as other:
        other.prepare = with_short_patience
        begin(service)
        other.start()

        def both_lost_it() -> bool:
            publisher.publish(sensors.make(10))
            return min(each.metrics()["streamkpca_connections_lost_total"] for each in (service, other)) >= 4

        wait_until(both_lost_it, "both have lost the session four times")
        for info in publisher.publish(sensors.make(10)):
            info.wait_for_publish(30)
        assert "is there another process with --client-id streamkpca?" in service.text() + other.text()
        other.stop()
        n = len(sensors.sent)

        def heard() -> int:
            both = [numbers_of(each.saved()) for each in (service, other)]
            return len(set.union(*both))

        wait_until(lambda: heard() == n, "both together have heard all")
        service.stop()
        rows = []
        for each in (service, other):
            saved = each.saved()
            assert saved is not None
            rows.append(saved.n_samples_seen_)
            # What one of them counts, it counts once.
            assert saved.n_samples_seen_ == len(numbers_of(saved))
    print(f"{n} messages for two services with one client identifier: {rows}")


def numbers_of(saved: StreamingKernelPCA | None) -> set[tuple[str, int]]:
    """Return the messages that a checkpoint holds."""
    if saved is None:
        return set()
    example = import_example()
    arrivals = example.Arrivals(1000, **saved.extra_["arrivals"])
    return {
        (topic, number)
        for topic in TOPICS
        if (numbers := arrivals.topics.get(example.fingerprint(topic.encode())))
        for number in range(numbers.first, numbers.highest + 1)
        if number in numbers
    }


@needs_broker
def test_a_second_service_with_the_same_checkpoints_or_port_refuses_to_start(broker: Broker, service: Service) -> None:
    begin(service)
    port = service.url.rpartition(":")[2].partition("/")[0]
    for name, message in (("model", "another process uses"), ("other", f"--metrics-port {port}: ")):
        second = Service(broker.folder, broker.port, *SMALL, "--client-id", "other", "--metrics-port", port, name=name)
        second.log = broker.folder / "second.log"
        with pytest.raises(AssertionError, match=message):
            second.start()
        assert second.process.exitcode == 1
    service.kill()
    service.start()
    service.stop()


def wrong_clocks(example: ModuleType) -> None:
    """Make the clock jump backwards and forwards by up to thirty years whenever it is read."""
    real, jumps = time.time, itertools.cycle([0, 1e9, -9e8, 1e6, -1e6, 3600, -3600, 1e9])
    time.time = lambda: real() + next(jumps)
    time.time_ns = lambda: int(time.time() * 1e9)


@needs_broker
def test_a_clock_that_jumps_by_years_changes_nothing(publisher: Peer, service: Service) -> None:
    sensors = Publishers(TOPICS, 10)
    service.prepare = wrong_clocks
    begin(service)
    for _ in range(5):
        publisher.publish(sensors.make(60))
        service.wait_for_messages(len(sensors.sent))
        wait_until(lambda: service.metrics()["streamkpca_unsaved"] == 0, "all is saved")
        assert 0.0 <= service.metrics()["streamkpca_checkpoint_age_seconds"] < 60.0
    # The jumps were there.
    years = {line[:4] for line in service.text().splitlines() if line[:4].isdigit()}
    assert len(years) > 1
    assert "disconnected" not in service.text()
    service.kill()
    service.start()
    assert service.n_handled() == len(sensors.sent)
    print(f"clocks in the years {sorted(years)}: {len(sensors.sent)} messages")


# A checkpoint of some rows is larger, the log is not.
SMALL_FILE = 3000


def with_small_files(_: ModuleType) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL_FILE, resource.RLIM_INFINITY))


@contextlib.contextmanager
def limited(service: Service) -> Iterator[Callable[[bool], None]]:
    """Let files of the service, and of the next one, have at most a few thousand bytes."""

    def fill(full: bool) -> None:
        limit = SMALL_FILE if full else resource.RLIM_INFINITY
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        service.prepare = with_small_files if full else None

    yield fill


@contextlib.contextmanager
def mounted(service: Service) -> Iterator[Callable[[bool], None]]:
    """Put the checkpoints on a file system of their own, which can be filled."""
    folder = Path(tempfile.mkdtemp())
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        folder.rmdir()
        pytest.skip("file systems cannot be mounted here")
    service.checkpoint = folder / "model.npz"
    service.arguments[service.arguments.index("--checkpoint") + 1] = str(service.checkpoint)

    def fill(full: bool) -> None:
        if full:
            with contextlib.suppress(OSError), (folder / "filler").open("ab", buffering=0) as file:
                while True:
                    file.write(b"\0" * 512)
        else:
            (folder / "filler").unlink()

    try:
        yield fill
    finally:
        service.__exit__()
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


@needs_broker
@pytest.mark.parametrize("disk", [limited, mounted])
def test_a_full_disk_stops_acknowledgements_until_it_has_room(
    publisher: Peer, service: Service, disk: Callable[[Service], Any]
) -> None:
    sensors = Publishers(TOPICS, 11)
    with disk(service) as fill:
        begin(service)
        publisher.publish(sensors.make(100))
        wait_until(lambda: service.saved() is not None and service.metrics()["streamkpca_unsaved"] == 0, "it is saved")
        n_saved = service.n_handled()
        fill(True)
        publisher.publish(sensors.make(200))
        service.wait_for_metric("streamkpca_failed_saves_total", 2)
        # The broker sends as many as may be unacknowledged, and waits. Mosquitto 2.0.11 sometimes sends a dozen more
        # after a burst of acknowledgements.
        wait_until(lambda: service.metrics()["streamkpca_unsaved"] >= 50, "as many wait as may")
        time.sleep(0.5)
        n_waiting = service.n_handled() - n_saved
        assert 50 <= n_waiting < 200
        assert "cannot save, and acknowledge nothing until that works" in service.text()
        saved = service.saved()
        assert saved is not None
        assert saved.n_samples_seen_ == n_saved
        # A process that must end now says so, and the next one begins where the checkpoint is.
        service.stop(code=1)
        assert f"the last {n_waiting:.0f} messages could not be saved; they are not acknowledged" in service.text()
        service.start()
        service.wait_for_metric("streamkpca_failed_saves_total", 1)
        fill(False)
        service.wait_for_messages(len(sensors.sent))
        service.stop()
        saved = service.saved()
        assert saved is not None
        assert saved.n_samples_seen_ == len(sensors.sent)
        assert counts_of(saved)["repeated"] == counts_of(saved)["restart"] == 0
        assert counts_of(saved)["failed saves"] >= 1


def options(folder: Path, *arguments: str) -> list[str]:
    made = ["sensor_service.py", "--topic", "plant/+", "--n-features", "3", "--checkpoint", str(folder / "model.npz")]
    return [*made, *arguments]


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a service in this process, whose connection is a mock."""
    example = import_example()
    monkeypatch.setattr("sys.argv", options(tmp_path))
    made = example.Service(example.checked_options())
    made.client = Mock()
    return made


def deliver(inside: Any, number: int, payload: bytes = b"[1, 2, 3]", *, dup: bool = False) -> None:
    example = import_example()
    properties = example.Properties(example.PacketTypes.PUBLISH)
    properties.UserProperty = ("number", str(number))
    message = example.MQTTMessage(number, b"plant/pump")
    message.properties, message.payload, message.qos, message.dup = properties, payload, 1, dup
    inside._on_message(inside.client, None, message)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("too large"), MemoryError()])
def test_whatever_saving_raises_nothing_is_acknowledged(
    inside: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    deliver(inside, 1)
    with monkeypatch.context() as patch:
        patch.setattr(inside.checkpoints, "save", Mock(side_effect=error))
        assert not inside._save()
        inside.client.ack.assert_not_called()
        deliver(inside, 2)
    assert inside._save()
    assert [call.args for call in inside.client.ack.call_args_list] == [(1, 1), (2, 1)]
    assert inside.counts["failed saves"] == 1


@pytest.mark.parametrize("error", [RuntimeError("a bug"), MemoryError(), FloatingPointError(), UnicodeDecodeError])
def test_a_message_that_cannot_be_learned_is_counted_and_acknowledged(
    inside: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Any
) -> None:
    if error is UnicodeDecodeError:
        message = import_example().MQTTMessage(7, b"\xff")
        message.qos, message.properties = 1, None
        inside._on_message(inside.client, None, message)
    else:
        with monkeypatch.context() as patch:
            patch.setattr(StreamingKernelPCA, "partial_fit", Mock(side_effect=error))
            deliver(inside, 7)
    deliver(inside, 8)
    assert inside._save()
    assert [call.args for call in inside.client.ack.call_args_list] == [(7, 1), (8, 1)]
    assert inside.counts["failed"] == 1
    assert inside.n_rows == 1
    assert "a message is left out" in caplog.text


def test_alarms_that_nobody_confirms_are_bounded(inside: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    example, n = import_example(), itertools.count(1)
    inside.client.publish.side_effect = lambda *_, **__: Mock(mid=next(n))
    for _ in range(5000):
        inside._publish("x" * 200)
    kept = example.MOST_ALARM_CHARACTERS // 200
    assert len(inside.unconfirmed) == inside.client.publish.call_count == kept
    assert inside.counts["alarms given up"] == 5000 - kept
    assert inside._save()
    for packet in range(1, kept + 1):
        inside._on_publish(inside.client, None, packet, Mock(is_failure=packet == 1), None)
    assert inside.unconfirmed_characters == 0
    inside._publish("y")
    assert list(inside.unconfirmed.values()) == ["y"]


def test_damaged_checkpoints_end_the_process_with_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = import_example()
    (tmp_path / "model-00000001.npz").write_bytes(b"no archive")
    monkeypatch.setattr("sys.argv", options(tmp_path))
    message = "none of 1 generations of .* can be read; restore one from a backup, or move them away"
    with pytest.warns(UserWarning, match="older generation"), pytest.raises(SystemExit, match=message):
        example.Service(example.checked_options())
    monkeypatch.setattr("sys.argv", options(tmp_path / "missing"))
    with pytest.raises(SystemExit, match="missing to be a folder; create it first"):
        example.Service(example.checked_options())


@pytest.mark.parametrize(
    "extra",
    [
        {"offset": 3},
        [1, 2],
        "text",
        {"arrivals": {"plant/pump": [7, [5, 6]]}, "counts": {}, "threshold": None, "alarms": []},
        {"arrivals": {"latest": "?", "topics": []}, "counts": {}, "threshold": None, "alarms": ""},
        {"arrivals": {"topics": [[1, 2]]}, "counts": {}, "threshold": None, "alarms": ""},
        {"arrivals": {"topics": [[1, 2, 9, 4]]}, "counts": {}, "threshold": None, "alarms": ""},
        {"arrivals": {}, "counts": {}, "threshold": None, "alarms": "!"},
    ],
)
def test_checkpoints_of_others_end_the_process_with_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: Any
) -> None:
    example = import_example()
    Checkpointer(tmp_path / "model.npz").save(StreamingKernelPCA(on_bad_rows="skip"), extra)
    monkeypatch.setattr("sys.argv", options(tmp_path))
    with pytest.raises(SystemExit, match="is not from this service; pass another --checkpoint"):
        example.Service(example.checked_options())


@needs_broker
def test_metrics_are_valid_in_both_formats(publisher: Peer, service: Service) -> None:
    begin(service)
    publisher.publish([Sent('plant/{x="1"}', 1, b"[1, 2, 3]", None), Sent("plant/b", 1, b"?", None)])
    service.wait_for_messages(2)
    request = urllib.request.Request(service.url, headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert "openmetrics-text" in answer.headers["Content-Type"]
        families = list(openmetrics.text_string_to_metric_families(answer.read().decode()))
    with urllib.request.urlopen(service.url, timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        lines = answer.read().decode().splitlines()
    assert {family.name for family in families} <= {
        line.split()[2].removesuffix("_total") for line in lines if line[0] == "#"
    }
    assert all(family.name.startswith("streamkpca_") and family.documentation for family in families)
    for line in lines:
        assert line.startswith(("# HELP streamkpca_", "# TYPE streamkpca_", "streamkpca_"))
        assert len(line) < 200


PASSWORD = "a long ünd secret word"


class Certificates:
    """An authority, the broker's certificate for 127.0.0.1, the service's, and an authority of others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("ca", "others"):
            self._openssl(*self._request(name), "-x509", "-days", "2", "-out", f"{name}.pem")
        for name, more in (("broker", "subjectAltName=IP:127.0.0.1"), ("plant", "keyUsage=digitalSignature")):
            (folder / "more").write_text(more, encoding="utf-8")
            self._openssl(*self._request(name), "-out", f"{name}.csr")
            sign = ["x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"]
            self._openssl(*sign, "-days", "2", "-extfile", "more", "-out", f"{name}.pem")
        self._openssl("ec", "-in", "plant.key", "-aes128", "-passout", "pass:x", "-out", "locked.key")

    def __getitem__(self, name: str) -> str:
        return str(self.folder / name)

    def _request(self, name: str) -> list[str]:
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key"]
        return ["req", *key, "-subj", f"/CN={name}"]

    def _openssl(self, *arguments: str) -> None:
        done = subprocess.run(["openssl", *arguments], cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make certificates")
    return Certificates(tmp_path_factory.mktemp("certificates"))


def encrypted(folder: Path, certificates: Certificates, *changes: str) -> Broker:
    files = [f"{key} {certificates[name]}" for key, name in (("cafile", "ca.pem"), ("certfile", "broker.pem"))]
    return Broker(folder, *files, f"keyfile {certificates['broker.key']}", *changes)


def set_password(broker: Broker, password: str) -> None:
    program = shutil.which("mosquitto_passwd")
    assert program is not None
    subprocess.run([program, "-c", "-b", str(broker.folder / "passwords"), "plant", password], check=True)


@needs_broker
def test_tls_with_a_password(tmp_path: Path, certificates: Certificates) -> None:
    files = ["allow_anonymous false", f"password_file {tmp_path}/passwords"]
    with encrypted(tmp_path, certificates, *files) as broker, Service(tmp_path, broker.port, *SMALL) as service:
        set_password(broker, "another")
        broker.start()
        (tmp_path / "password").write_text(f"{PASSWORD}\nand no other line\n", encoding="utf-8")
        user = ["--user", "plant", "--password-file", str(tmp_path / "password")]
        trusting = ["--ca-file", certificates["ca.pem"]]
        own = service.arguments
        for doubt, arguments in (
            ("certificate verify failed", ["--tls", *user]),
            ("certificate verify failed", ["--ca-file", certificates["others.pem"], *user]),
            # It is for 127.0.0.1 only.
            ("certificate is not valid for 'localhost'", [*trusting, *user, "--host", "localhost"]),
            ("no broker at 127.0.0.1", user),
            ("the broker refuses the connection: Not authorized", trusting),
            ("the broker refuses the connection: Not authorized", ["--tls-insecure", *user]),
        ):
            service.arguments = [*own, *arguments]
            service.start()
            service.wait_for(doubt) if arguments != user else time.sleep(1.5)
            assert "subscribed" not in service.text()
            service.stop()
        # Now the password is right, and the service waits for the broker to know it.
        service.arguments = [*own, *trusting, *user]
        service.start()
        service.wait_for("the broker refuses the connection")
        set_password(broker, PASSWORD)
        assert broker.process is not None
        broker.process.send_signal(signal.SIGHUP)
        service.wait_for("subscribed")

        def prepare(client: Any) -> None:
            client.tls_set(certificates["ca.pem"])
            client.username_pw_set("plant", PASSWORD)

        sensors = Publishers(TOPICS, 12)
        with Peer(broker, "publisher", prepare=prepare) as publisher:
            publisher.publish(sensors.make(100))
            service.wait_for_messages(100)
            service.kill()
            # From the environment, and without a check of the certificate.
            service.arguments = [*own, "--tls-insecure", "--user", "plant"]
            service.environment["MQTT_PASSWORD"] = PASSWORD
            service.start()
            publisher.publish(sensors.make(100))
            service.wait_for_messages(200)
            service.stop()
            assert PASSWORD not in service.text()
        saved = service.saved()
        assert saved is not None
        assert saved.n_samples_seen_ == 200


@needs_broker
def test_tls_with_a_certificate(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = ["require_certificate true", "use_identity_as_username true", "allow_anonymous false"]
    with encrypted(tmp_path, certificates, *changes) as broker, Service(tmp_path, broker.port, *SMALL) as service:
        broker.start()
        own = [*service.arguments, "--ca-file", certificates["ca.pem"]]
        service.arguments = own
        service.start()
        service.wait_for("disconnected")
        assert "subscribed" not in service.text()
        service.stop()
        pair = ["--cert-file", certificates["plant.pem"], "--key-file", certificates["plant.key"]]
        service.arguments = [*own, *pair]
        begin(service)
        with Peer(
            broker, "publisher", prepare=lambda client: client.tls_set(certificates["ca.pem"], *pair[1::2])
        ) as peer:
            peer.publish(Publishers(TOPICS, 13).make(100))
            service.wait_for_messages(100)
        service.stop()
        # A locked key would ask the terminal for its password.
        service.arguments = [*own, *pair[:3], certificates["locked.key"]]
        monkeypatch.setattr("sys.argv", ["sensor_service.py", *service.arguments])
        with pytest.raises(SystemExit, match="2"):
            import_example().main()
        assert "--cert-file, --key-file: " in capsys.readouterr().err
