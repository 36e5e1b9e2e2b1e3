"""The example of a service, killed at random moments before a real broker, counts every message exactly once."""

import base64
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from sensor_services import (
    GUIDE,
    SCRIPT,
    Broker,
    Peer,
    Sent,
    Service,
    alarms_in,
    free_port,
    import_example,
    needs_broker,
    numbers_in,
    wait_until,
)

import streamkpca
from streamkpca import Checkpointer, StreamingKernelPCA, kernels

pytestmark = pytest.mark.slow

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
KILLS = 120 if NIGHTLY else 8
MESSAGES = 40_000 if NIGHTLY else 4_000
ATOMS, ALARMS_AFTER, QUANTILE, REFRESH = 24, 900, 0.99, 1000
SENSORS = [f"plant/{name}" for name in ("boiler", "pump", "valve")]
GARBAGE = [b"", b"\xff\xfe\x00", b"no numbers", b"[1, 2", b"[1, 2]", b"[1, 2, 3, 4]", b'{"x": 1}', b'["1", "2", "3"]']
GARBAGE += [b"[true, false, true]", b"[[1, 2, 3]]", b"1", b"null", b"[1" + 400 * b"0" + b", 2, 3]", 5000 * b"["]


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


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path) as made:
        made.start()
        yield made


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


def service_at(port: int, folder: Path, *arguments: str) -> Service:
    model = ["--atoms", str(ATOMS), "--alarms-after", str(ALARMS_AFTER), "--quantile", str(QUANTILE)]
    return Service(folder, port, *model, *arguments)


@pytest.fixture
def service(broker: Broker) -> Iterator[Service]:
    # Checkpoints so frequent that a good part of the kills falls into them.
    with service_at(broker.port, broker.folder, "--every-messages", "25", "--every-seconds", "0.2") as made:
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
    counts = Counter(saved.extra_["counts"])
    assert saved.n_samples_seen_ + counts["malformed"] == len(sent)
    assert counts["malformed"] == expected.n_malformed
    assert saved.n_rows_rejected_ == expected.model.n_rows_rejected_
    assert counts["alarms"] == len(expected.novel)
    highest = {topic: max(message.number for message in sent if message.topic == topic) for topic in SENSORS}
    assert numbers_in(saved, SENSORS) == {topic: [1, number] for topic, number in highest.items()}
    assert counts["restart"] == 0
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
    counts = Counter(saved.extra_["counts"])
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
    broker = Broker(tmp_path, "max_inflight_messages 20")
    service = service_at(broker.port, tmp_path, "--every-messages", "1000", "--every-seconds", "0.05")
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
def test_what_publishers_repeat_delay_and_lose(
    broker: Broker, publisher: Peer, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = b"[1, 2, 3]"
    service.start()
    service.wait_for("subscribed")
    numbers = [1, 2, 4, 2, 1, 3, 3, 7]
    publisher.publish([Sent("plant/pump", number, row, None) for number in numbers])
    publisher.publish([Sent("plant/valve", 1, row, None)], qos=0)
    publisher.send("plant/valve", row)
    wait_until(lambda: service.n_handled() >= 7, "all messages are handled")
    metrics = service.metrics()
    assert metrics["streamkpca_rows_total"] == 6
    assert metrics["streamkpca_repeated_total"] == 3
    assert metrics["streamkpca_missing"] == 2
    assert metrics["streamkpca_rejected_total/bad number"] == 1
    service.stop()
    saved = service.saved()
    assert saved is not None
    assert numbers_in(saved, ["plant/pump", "plant/valve"]) == {"plant/pump": [1, 7, 5, 6], "plant/valve": [1, 1]}

    service.arguments[service.arguments.index("--n-features") + 1] = "4"
    refused = service.run()
    assert refused.returncode == 1
    assert "has 3 features, not 4; pass --n-features 3" in refused.stderr
    service.arguments[service.arguments.index("--n-features") + 1] = "3"
    Checkpointer(service.checkpoint).save(saved, {"offset": 7})
    with pytest.raises(SystemExit, match="is not from this service; pass another --checkpoint"):
        main(service, monkeypatch)


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
    extra = {"arrivals": {}, "counts": {}, "threshold": None}
    extra["alarms"] = base64.b64encode(json.dumps(left).encode()).decode()
    Checkpointer(service.folder / "model.npz").save(StreamingKernelPCA(on_bad_rows="skip"), extra)
    service.start()
    wait_until(lambda: len(alarms.received) == len(left), "all alarms have come")
    service.stop()
    assert [alarm.decode() for alarm in alarms.received] == left
    saved = service.saved()
    assert saved is not None
    assert alarms_in(saved) == []


@needs_broker
def test_the_guide_works_word_by_word(broker: Broker, tmp_path: Path) -> None:
    """Run the commands of the docstring; only ports differ, which may be taken here, and the broker has begun."""
    programs = [shutil.which(name) for name in ("mosquitto_pub", "mosquitto_sub", "curl")]
    if not all(programs):
        pytest.skip("needs mosquitto_pub, mosquitto_sub (Debian: mosquitto-clients) and curl")
    metrics = str(free_port())
    blocks = re.findall(r"^ +(python examples/.*|--host .*)$", GUIDE, re.MULTILINE)
    publish, scrape, watch = (
        found for step in re.findall(r"^[56]\. .*", GUIDE, re.MULTILINE) for found in quoted(step)
    )
    start, remote = blocks
    (tmp_path / "examples").symlink_to(SCRIPT.parent)

    def shell(command: str) -> subprocess.Popen[str]:
        ports = {"mosquitto_pub": f"-p {broker.port}", "mosquitto_sub": f"-p {broker.port}"}
        ports |= {"examples/sensor_service.py": f"--port {broker.port} --metrics-port {metrics}"}
        for name, more in ports.items():
            command = command.replace(name, f"{name} {more}")
        command = command.replace("python ", f"exec {sys.executable} -W error ", 1).replace("9464", metrics)
        paths = {"PYTHONPATH": str(Path(streamkpca.__file__).parents[1])}
        return subprocess.Popen(
            command, shell=True, cwd=tmp_path, env=os.environ | paths, stdout=subprocess.PIPE, text=True
        )

    with shell(start) as service, shell(f"exec {watch}") as watching:
        try:

            def scraped() -> str:
                with shell(scrape.replace("curl", "curl -s")) as answer:
                    return answer.communicate(timeout=30)[0]

            wait_until(lambda: "streamkpca_connected 1.0" in scraped(), "the service is connected")
            time.sleep(0.5)
            with shell(publish) as done:
                assert done.wait(30) == 0
            wait_until(lambda: "streamkpca_rows_total 1.0" in scraped(), "the message is learned")
            service.send_signal(signal.SIGINT)
            assert service.wait(30) == 0
            with shell('mosquitto_pub -t alarms -m "an alarm"') as done:
                assert done.wait(30) == 0
            assert watching.stdout is not None
            assert watching.stdout.readline() == "an alarm\n"
        finally:
            service.kill()
            watching.kill()
    assert (tmp_path / "model-00000001.npz").exists()
    # What the guide says about remote brokers.
    (tmp_path / "password.txt").write_text("secret\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setattr(import_example(), "tls_of", lambda options: options.ca_file)
        patch.setattr("sys.argv", ["sensor_service.py", *shlex.split(start)[2:], *remote.split()])
        options = import_example().checked_options()
    assert (options.host, options.port, options.user, options.password) == ("broker.example", 8883, "plant", "secret")
    assert options.tls == "ca.crt"


def quoted(text: str) -> list[str]:
    return re.findall("``(.*?)``", text)


def main(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the script in this process, which must refuse to begin."""
    monkeypatch.setattr("sys.argv", ["sensor_service.py", *service.arguments])
    import_example().main()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--alarm-topic plant/alarms", "--topic plant/+ takes in --alarm-topic plant/alarms; choose another"),
        ("--alarm-topic alarms/#", "--alarm-topic must be one topic, without + and #"),
        ("--topic plant/x+", "--topic plant/x+ is no filter; + stands for a whole level, and # for all from there on"),
        ("--every-messages 70000", "--every-messages must be from 1 to 65535"),
        ("--every-messages 0", "--every-messages must be from 1 to 65535"),
        ("--every-seconds nan", "--every-seconds must be above 0"),
        ("--n-features 0", "--n-features must be from 1 to 1000000"),
        ("--quantile 1", "--quantile must be between 0 and 1"),
        ("--atoms 0", "--atoms must be at least 1"),
        ("--kernel none", "got 'none'"),
        ("--password-file missing.txt", "--password-file needs --user"),
        ("--user plant --password-file missing.txt", "missing.txt"),
        ("--key-file key.pem", "--key-file needs --cert-file"),
        ("--ca-file missing.pem", "--ca-file"),
        ("--cert-file missing.pem", "--cert-file"),
        ("--password secret", "unrecognized arguments: --password secret"),
    ],
)
def test_arguments_that_make_no_sense(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    message: str,
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(Service(tmp_path, 1, *arguments.split()), monkeypatch)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("payload", GARBAGE, ids=lambda payload: repr(payload[:12]))
def test_garbage_is_no_row(payload: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whose words they are does not matter
        import_example().row_of(payload, 3)
