"""The example of a service, killed at random moments before a real broker, counts every message exactly once."""

import importlib.util
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamkpca
from streamkpca import Checkpointer, StreamingKernelPCA, kernels

mqtt = pytest.importorskip("paho.mqtt.client", reason="the service talks MQTT; needs the extra service")
parser = pytest.importorskip("prometheus_client.parser", reason="the service is measured; needs the extra service")

from paho.mqtt.enums import CallbackAPIVersion  # noqa: E402
from paho.mqtt.packettypes import PacketTypes  # noqa: E402
from paho.mqtt.properties import Properties  # noqa: E402

pytestmark = pytest.mark.slow

# Debian puts it where only root's PATH looks.
MOSQUITTO = shutil.which("mosquitto", path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"]))
needs_broker = pytest.mark.skipif(MOSQUITTO is None, reason="needs the broker Mosquitto (Debian: mosquitto)")

SCRIPT = Path(__file__).parents[2] / "examples" / "sensor_service.py"
NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
KILLS = 120 if NIGHTLY else 8
MESSAGES = 40_000 if NIGHTLY else 4_000
ATOMS, ALARMS_AFTER, QUANTILE, REFRESH = 24, 900, 0.99, 1000
SENSORS = [f"plant/{name}" for name in ("boiler", "pump", "valve")]
GARBAGE = [b"", b"\xff\xfe\x00", b"no numbers", b"[1, 2", b"[1, 2]", b"[1, 2, 3, 4]", b'{"x": 1}', b'["1", "2", "3"]']
GARBAGE += [b"[[1, 2, 3]]", b"1", b"null", b"[1" + 400 * b"0" + b", 2, 3]", 5000 * b"["]


class Sent(NamedTuple):
    """A message of a sensor; `row` is None if the payload is garbage."""

    topic: str
    number: int
    payload: bytes
    row: npt.NDArray[np.float64] | None
    strange: bool = False


def messages(n: int, seed: int) -> list[Sent]:
    """Make the messages of sensors that follow one curve, with garbage, gaps and anomalies among them."""
    rng = np.random.default_rng(seed)
    angles, noise = rng.uniform(0.0, 2.0 * np.pi, n), rng.normal(scale=0.02, size=(n, 3))
    rows = np.column_stack([np.cos(angles), np.sin(angles), np.sin(2.0 * angles)]) + noise
    kinds, numbers, sent = rng.uniform(size=n), dict.fromkeys(SENSORS, 0), []
    for i, (row, kind) in enumerate(zip(rows, kinds, strict=True)):
        topic = SENSORS[rng.integers(len(SENSORS))]
        numbers[topic] += 1
        if kind < 0.02:
            sent.append(Sent(topic, numbers[topic], GARBAGE[i % len(GARBAGE)], None))
            continue
        # About twenty, however long the stream: the threshold is a quantile, and must not be one of theirs.
        strange = kind > 1.0 - 40.0 / n and i > n / 2
        # Each somewhere else, or the model would get used to them.
        row = row + (5.0 + i / 20) * rng.choice([-1.0, 1.0], size=3) if strange else row
        values: list[float | None] = row.tolist()
        if 0.02 < kind < 0.04:
            values[i % 3] = (None, float("nan"), float("inf"))[i // 3 % 3]
        read = np.array([np.nan if value is None else value for value in values])
        sent.append(Sent(topic, numbers[topic], json.dumps(values).encode(), read, strange))
    return sent


def wait_until(true: Callable[[], bool], what: str, *, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain until {what}"
        time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Broker:
    """Mosquitto on a port of the loopback, with its memory in a folder."""

    def __init__(self, folder: Path, n_unacknowledged: int = 1000) -> None:
        self.port, self.folder = free_port(), folder
        self.process: subprocess.Popen[bytes] | None = None
        # The settings of the example's docstring. Mosquitto drops root's rights, and could not write here then.
        settings = f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence true\nuser root\n"
        settings += f"persistence_location {folder}/\nmax_queued_messages 0\nmax_inflight_messages {n_unacknowledged}\n"
        (folder / "mosquitto.conf").write_text(settings, encoding="utf-8")

    def start(self) -> None:
        assert MOSQUITTO is not None
        with (self.folder / "mosquitto.log").open("ab") as log:
            command = [MOSQUITTO, "-c", str(self.folder / "mosquitto.conf")]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self._answers, "the broker answers")

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait(timeout=30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.stop()

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "mosquitto.log").read_text(encoding="utf-8")
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1.0).close()
        except OSError:
            return False
        return True


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path) as made:
        made.start()
        yield made


class Peer:
    """A client of the test, which publishes in order and collects the messages of a topic."""

    def __init__(self, broker: Broker, name: str, topic: str | None = None) -> None:
        self.received: list[Any] = []
        self.ready = threading.Event()
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=mqtt.MQTTv5)
        self.client.reconnect_delay_set(min_delay=1, max_delay=1)
        self.client.on_message = lambda client, userdata, message: self.received.append(message.payload)
        self.client.on_subscribe = lambda *_: self.ready.set()
        self.client.on_connect = lambda *_: self.client.subscribe(topic, qos=1) if topic else self.ready.set()
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 3600
        self.client.connect("127.0.0.1", broker.port, clean_start=False, properties=properties)
        self.client.loop_start()
        assert self.ready.wait(30)

    def publish(self, sent: list[Sent], *, qos: int = 1) -> list[Any]:
        infos = []
        for message in sent:
            properties = Properties(PacketTypes.PUBLISH)
            properties.UserProperty = ("number", str(message.number))
            infos.append(self.client.publish(message.topic, message.payload, qos=qos, properties=properties))
        return infos

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def publisher(broker: Broker) -> Iterator[Peer]:
    peer = Peer(broker, "publisher")
    yield peer
    peer.close()


@pytest.fixture
def alarms(broker: Broker) -> Iterator[Peer]:
    peer = Peer(broker, "listener", "alarms")
    yield peer
    peer.close()


class Service:
    """The example in a separate process, which may be killed and started again."""

    def __init__(self, folder: Path, port: int, *arguments: str) -> None:
        self.folder = folder
        self.log = folder / "service.log"
        self.arguments = ["--port", str(port), "--topic", "plant/+", "--n-features", "3", "--metrics-port", "0"]
        self.arguments += ["--checkpoint", str(folder / "model.npz"), "--atoms", str(ATOMS)]
        self.arguments += ["--alarms-after", str(ALARMS_AFTER), "--quantile", str(QUANTILE), *arguments]
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> None:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(self._command(), stdout=log, stderr=log, env=self._environment())
        wait_until(self._is_up, "the service is up")

    def run(self) -> subprocess.CompletedProcess[str]:
        """Run it to its end, which must come soon."""
        return subprocess.run(
            self._command(), capture_output=True, text=True, env=self._environment(), timeout=60, check=False
        )

    def _command(self) -> list[str]:
        return [sys.executable, "-W", "error", str(SCRIPT), *self.arguments]

    def _environment(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(Path(streamkpca.__file__).parents[1])}

    def _is_up(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.text()
        lines = [line for line in self.text().splitlines() if "metrics: " in line]
        self.url = lines[0].partition("metrics: ")[2] if lines else ""
        return bool(self.url)

    def wait_for(self, words: str) -> None:
        wait_until(lambda: words in self.text(), f"the service has said {words!r}")

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def kill(self) -> None:
        assert self.process is not None
        assert self.process.poll() is None, self.text()
        self.process.kill()
        self.process.wait(timeout=30)

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        assert self.process.wait(timeout=30) == 0, self.text()

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(self.url, timeout=30) as answer:
            text = answer.read().decode()
        samples = [sample for family in parser.text_string_to_metric_families(text) for sample in family.samples]
        return {"/".join([sample.name, *sample.labels.values()]): sample.value for sample in samples}

    def n_handled(self) -> float:
        found = self.metrics()
        return found["streamkpca_rows_total"] + found["streamkpca_rejected_total/malformed"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=30)

    def saved(self) -> StreamingKernelPCA | None:
        return Checkpointer(self.folder / "model.npz").latest()


@pytest.fixture
def service(broker: Broker) -> Iterator[Service]:
    # Checkpoints so frequent that a good part of the kills falls into them.
    with Service(broker.folder, broker.port, "--every-messages", "25", "--every-seconds", "0.2") as made:
        yield made


class Expected(NamedTuple):
    """The model and alarms of one process that was never killed, from the same messages."""

    model: StreamingKernelPCA
    n_malformed: int
    novel: set[tuple[str, int]]
    features: dict[tuple[str, int], list[int]]


def expect(sent: list[Sent]) -> Expected:
    model = StreamingKernelPCA(kernel=kernels.RBF(), max_atoms=ATOMS, on_bad_rows="skip")
    threshold, n_malformed, novel, features = None, 0, set(), {}
    for message in sent:
        try:
            if message.row is None:
                raise ValueError
            finite = np.isfinite(message.row).all()
            novelty = model.novelty([message.row])[0] if threshold is not None and finite else 0.0
            is_novel = threshold is not None and novelty > threshold
            contributions = model.contributions([message.row])[0] if is_novel else np.zeros(3)
            model.partial_fit([message.row])
        except ValueError:
            n_malformed += 1
            continue
        if is_novel:
            novel.add((message.topic, message.number))
            features[message.topic, message.number] = np.argsort(-contributions).tolist()
        if model.n_samples_seen_ >= ALARMS_AFTER + model.n_rows_rejected_ and model.n_samples_seen_ % REFRESH == 0:
            threshold = model.novelty_threshold(QUANTILE)
    return Expected(model, n_malformed, novel, features)


def check_counted_once(saved: StreamingKernelPCA | None, sent: list[Sent], expected: Expected) -> None:
    assert saved is not None
    assert saved.n_samples_seen_ + saved.extra_["counts"]["malformed"] == len(sent)
    assert saved.extra_["counts"]["malformed"] == expected.n_malformed
    assert saved.n_rows_rejected_ == expected.model.n_rows_rejected_
    assert saved.extra_["counts"]["alarms"] == len(expected.novel)
    highest = {topic: max(message.number for message in sent if message.topic == topic) for topic in SENSORS}
    assert saved.extra_["arrivals"] == {topic: [number, []] for topic, number in highest.items()}
    # Not only all, but in their order.
    assert saved.to_bytes() == expected.model.to_bytes()


def check_alarms(alarms: Peer, sent: list[Sent], expected: Expected) -> None:
    """Check that each alarm came, possibly twice, and no other."""

    def received() -> set[tuple[str, int]]:
        return {(alarm["topic"], alarm["number"]) for alarm in map(json.loads, list(alarms.received))}

    wait_until(lambda: received() >= expected.novel, "all alarms have come")
    assert received() == expected.novel
    strange = {(message.topic, message.number) for message in sent if message.strange}
    assert len(strange) > 10
    assert strange <= expected.novel
    for alarm in map(json.loads, alarms.received):
        assert alarm["novelty"] > alarm["threshold"] > 0.0
        assert alarm["features"] == expected.features[alarm["topic"], alarm["number"]]


def check_nothing_waits(broker: Broker) -> None:
    """Take over the service's session, so that only messages sent from now on come."""
    heir = Peer(broker, "streamkpca")
    heir.client.publish("plant/last", b"the last", qos=1)
    wait_until(lambda: bool(heir.received), "the last message comes")
    heir.close()
    assert heir.received == [b"the last"]


def check_metrics(metrics: dict[str, float], saved: StreamingKernelPCA | None) -> None:
    assert saved is not None
    counts = saved.extra_["counts"]
    assert metrics["streamkpca_rows_total"] == saved.n_samples_seen_
    assert metrics["streamkpca_rejected_total/not finite"] == saved.n_rows_rejected_ > 0
    assert metrics["streamkpca_rejected_total/malformed"] == counts["malformed"] > 0
    assert metrics["streamkpca_repeated_total"] == counts["repeated"]
    assert metrics["streamkpca_alarms_total"] == counts["alarms"]
    assert metrics["streamkpca_missing"] == 0
    assert metrics["streamkpca_atoms"] == saved.n_atoms_
    assert metrics["streamkpca_unexplained_energy_ratio"] == pytest.approx(saved.unexplained_energy_ratio_)
    assert 0.0 < metrics["streamkpca_unexplained_energy_ratio"] < 0.2
    assert 0.0 <= metrics["streamkpca_checkpoint_age_seconds"] < 60.0
    # The last process's own.
    assert 0 < metrics["streamkpca_message_seconds_count"] == metrics["streamkpca_message_seconds_bucket/+Inf"]
    assert 0.0 < metrics["streamkpca_message_seconds_sum"] < 60.0


@needs_broker
def test_killed_at_random_moments_it_counts_every_message_once(
    broker: Broker, publisher: Peer, alarms: Peer, service: Service
) -> None:
    sent, pause = messages(MESSAGES, seed=0), random.Random(1)
    shares = np.array_split(np.arange(len(sent)), KILLS + 1)
    found = []
    for share in shares[:-1]:
        service.start()
        if not found:
            # Before the first subscription the broker keeps nothing.
            service.wait_for("subscribed")
        publisher.publish([sent[i] for i in share])
        if pause.random() < 0.8:
            before = service.n_handled()
            wait_until(lambda before=before: service.n_handled() > before, "the first message is handled")
        time.sleep(pause.uniform(0.0, 0.15))
        service.kill()
        saved = service.saved()
        found.append(0 if saved is None else saved.n_samples_seen_)
    service.start()
    publisher.publish([sent[i] for i in shares[-1]])
    wait_until(lambda: service.n_handled() >= len(sent), "all messages are handled")
    metrics = service.metrics()
    service.stop()

    # The kills came while there was work, each time at another place.
    assert found == sorted(found)
    assert len(set(found)) > KILLS / 2
    expected = expect(sent)
    saved = service.saved()
    check_counted_once(saved, sent, expected)
    check_metrics(metrics, saved)
    check_alarms(alarms, sent, expected)
    check_nothing_waits(broker)


@needs_broker
def test_a_broker_may_come_late_leave_and_come_back(tmp_path: Path) -> None:
    sent = messages(1500, seed=2)
    # With Mosquitto's own limit the window is full before a checkpoint is due; the clock goes on.
    broker = Broker(tmp_path, n_unacknowledged=20)
    service = Service(tmp_path, broker.port, "--every-messages", "1000", "--every-seconds", "0.05")
    with service, broker:
        service.start()
        service.wait_for("no broker at")
        broker.start()
        service.wait_for("session new")
        service.wait_for("subscribed")
        publisher = Peer(broker, "publisher")
        for half, n_before in ((sent[:700], 200), (sent[700:-1], 900)):
            publisher.publish(half)
            wait_until(lambda n_before=n_before: service.n_handled() > n_before, "the service is at work")
            # It may say goodbye, and writes its memory down.
            broker.stop()
            broker.start()
        # All others may have come before the broker went the second time; what it repeats comes before the last.
        wait_until(lambda: service.text().count("session resumed") >= 2, "the service has come back twice")
        publisher.publish(sent[-1:])
        wait_until(lambda: service.n_handled() >= len(sent), "all messages are handled")
        publisher.close()
        service.stop()
        assert service.text().count("session resumed") == 2
        check_counted_once(service.saved(), sent, expect(sent))
        check_nothing_waits(broker)


@needs_broker
def test_what_publishers_repeat_delay_and_lose(broker: Broker, publisher: Peer, service: Service) -> None:
    row = b"[1, 2, 3]"
    service.start()
    service.wait_for("subscribed")
    numbers = [1, 2, 4, 2, 1, 3, 3, 7]
    publisher.publish([Sent("plant/pump", number, row, None) for number in numbers])
    publisher.publish([Sent("plant/valve", 1, row, None)], qos=0)
    publisher.client.publish("plant/valve", row, qos=1)
    wait_until(lambda: service.n_handled() >= 7, "all messages are handled")
    metrics = service.metrics()
    assert metrics["streamkpca_rows_total"] == 6
    assert metrics["streamkpca_repeated_total"] == 3
    assert metrics["streamkpca_missing"] == 2
    assert metrics["streamkpca_rejected_total/malformed"] == 1
    service.stop()
    saved = service.saved()
    assert saved is not None
    assert saved.extra_["arrivals"] == {"plant/pump": [7, [5, 6]], "plant/valve": [1, []]}

    service.arguments[service.arguments.index("--n-features") + 1] = "4"
    refused = service.run()
    assert refused.returncode == 1
    assert "has 3 features, not 4; pass --n-features 3" in refused.stderr


@needs_broker
def test_what_no_checkpoint_holds_is_not_acknowledged(broker: Broker, publisher: Peer, service: Service) -> None:
    service.arguments += ["--every-messages", "1000", "--every-seconds", "1000"]
    sent = messages(100, seed=3)
    service.start()
    service.wait_for("subscribed")
    publisher.publish(sent)
    wait_until(lambda: service.n_handled() == len(sent), "all messages are handled")
    service.kill()
    assert service.saved() is None
    heir = Peer(broker, "streamkpca")
    wait_until(lambda: len(heir.received) == len(sent), "all messages come again")
    heir.close()
    assert heir.received == [message.payload for message in sent]


@needs_broker
def test_alarms_that_a_kill_left_unconfirmed_are_published_again(
    broker: Broker, alarms: Peer, service: Service
) -> None:
    left = [json.dumps({"topic": "plant/pump", "number": number}) for number in range(1, 31)]
    extra = {"arrivals": {}, "counts": {}, "threshold": None, "alarms": left}
    Checkpointer(service.folder / "model.npz").save(StreamingKernelPCA(on_bad_rows="skip"), extra)
    service.start()
    wait_until(lambda: len(alarms.received) == len(left), "all alarms have come")
    service.stop()
    assert [alarm.decode() for alarm in alarms.received] == left
    saved = service.saved()
    assert saved is not None
    assert saved.extra_["alarms"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--alarm-topic", "plant/alarms"], "--topic plant/+ takes in --alarm-topic plant/alarms; choose another"),
        (["--every-messages", "70000"], "--every-messages must be from 1 to 65535"),
        (["--every-messages", "0"], "--every-messages must be from 1 to 65535"),
    ],
)
def test_arguments_that_make_no_sense(tmp_path: Path, arguments: list[str], message: str) -> None:
    refused = Service(tmp_path, 1, *arguments).run()
    assert refused.returncode == 2
    assert message in refused.stderr


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sensor_service", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@given(st.data(), st.lists(st.integers(1, 40), max_size=60))
def test_numbers_are_new_once_in_any_order_and_after_any_restart(
    example: ModuleType, data: st.DataObject, numbers: list[int]
) -> None:
    arrivals, come = example.Arrivals(), set()
    for number in numbers:
        assert arrivals.note(number) == (number not in come)
        come.add(number)
        if data.draw(st.booleans()):
            arrivals = example.Arrivals(*json.loads(json.dumps(arrivals.record())))
    assert arrivals.missing == set(range(1, max(come, default=0))) - come


def test_a_leap_of_numbers_takes_no_memory(example: ModuleType) -> None:
    arrivals = example.Arrivals()
    for number in (1, 10**15, 10**15 + 10**6, 10**15 + 10**6 + 3):
        assert arrivals.note(number)
        assert not arrivals.note(number)
        assert len(arrivals.missing) <= 1000
    assert arrivals.note(10**15 + 10**6 + 1)
    assert not arrivals.note(2)


@pytest.mark.parametrize("payload", GARBAGE, ids=lambda payload: repr(payload[:12]))
def test_garbage_is_no_row(example: ModuleType, payload: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whose words they are does not matter
        example.row_of(payload, 3)
