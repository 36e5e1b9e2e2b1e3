"""The example of a service: killed at random moments before a real broker, it counts every message exactly once.

HYPOTHESIS_PROFILE=nightly kills it 60 times.
"""

import importlib.util
import itertools
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock, patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamkpca
from streamkpca import Checkpointer
from streamkpca.monitoring import Monitor

mqtt = pytest.importorskip("paho.mqtt.client", reason="the service talks MQTT; needs the extra service")
parser = pytest.importorskip("prometheus_client.parser", reason="the service is measured; needs the extra service")

from paho.mqtt.enums import CallbackAPIVersion  # noqa: E402
from paho.mqtt.packettypes import PacketTypes  # noqa: E402
from paho.mqtt.properties import Properties  # noqa: E402

# Debian puts it where only root's PATH looks.
MOSQUITTO = shutil.which("mosquitto", path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"]))
SCRIPT = Path(__file__).parents[2] / "examples" / "sensor_service.py"
KILLS = 60 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 4
MESSAGES = 500 * (KILLS + 1)
QUANTILE, NAMES = 0.99, ["flow", "pressure", "heat"]
FIRST_TIME = np.datetime64("2024-02-28T12:00:00", "us")
SENSORS = [f"plant/{name}" for name in ("boiler", "pump", "valve")]
GARBAGE = [b"", b"\xff\xfe\x00", b"[1, 2", b"[1, 2]", b'{"x": 1}', b'["1", "2", "3"]', b"[true, false, true]"]
GARBAGE += [b"[[1, 2, 3]]", b"null", b"[1" + 400 * b"0" + b", 2, 3]", 5000 * b"["]

_spec = importlib.util.spec_from_file_location("sensor_service", SCRIPT)
example = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(example)


def wait_until(true, what):
    deadline = time.monotonic() + 60.0
    while not true():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.03)


# Before a broker


class Sent(NamedTuple):
    """A message of a sensor; `row` is None if the payload is garbage."""

    topic: str
    number: int
    payload: bytes
    row: Any
    time: np.datetime64
    strange: bool = False


def messages(n, seed):
    """Make the messages of sensors that follow one curve, with garbage, gaps and anomalies among them."""
    rng = np.random.default_rng(seed)
    angles, noise = rng.uniform(0.0, 2.0 * np.pi, n), rng.normal(scale=0.02, size=(n, 3))
    rows = np.column_stack([np.cos(angles), np.sin(angles), np.sin(2.0 * angles)]) + noise
    kinds, numbers, sent = rng.uniform(size=n), dict.fromkeys(SENSORS, 0), []
    for i, (row, kind) in enumerate(zip(rows, kinds, strict=True)):
        topic = SENSORS[rng.integers(len(SENSORS))]
        numbers[topic] += 1
        time_sent = FIRST_TIME + np.timedelta64(i, "s")
        if kind < 0.02:
            sent.append(Sent(topic, numbers[topic], GARBAGE[i % len(GARBAGE)], None, time_sent))
            continue
        # About twenty, however long the stream: the threshold is a quantile, and must not be one of theirs.
        strange = kind > 1.0 - 40.0 / n and i > n / 2
        # Each somewhere else, or the model would get used to them.
        row = row + (5.0 + i / 20) * rng.choice([-1.0, 1.0], size=3) if strange else row
        values = row.tolist()
        if 0.02 < kind < 0.04:
            values[i % 3] = (None, float("nan"), float("inf"))[i // 3 % 3]
        read = np.array([np.nan if value is None else value for value in values])
        sent.append(Sent(topic, numbers[topic], json.dumps(values).encode(), read, time_sent, strange))
    return sent


def expect(sent):
    """Return the monitor of one process that was never killed, and the messages that it has learned from."""
    learned = [message for message in sent if message.row is not None and np.isfinite(message.row).all()]
    monitor = Monitor(quantile=QUANTILE)
    monitor.update([message.row for message in learned], time=[message.time for message in learned])
    return monitor, learned


def as_alarm(event, first):
    """Return the alarm of an event that began with a message."""
    times = {name: f"{getattr(event, name)}Z" for name in ("start_time", "end_time", "peak_time")}
    features = [{**feature._asdict(), "feature": NAMES[feature.feature]} for feature in event.features]
    for feature in features:
        feature.update({name: f"{value}Z" for name, value in feature.items() if isinstance(value, np.datetime64)})
    named = {"features": features, "ranking": [NAMES[feature] for feature in event.ranking]}
    kept = {name: value for name, value in vars(event).items() if not name.startswith("_")}
    return {**kept, **times, **named, "topic": first.topic, "number": first.number}


def settings_of_the_guide():
    """Return the lines of mosquitto.conf that the example's docstring tells to write."""
    found = re.search(r"Write ``mosquitto\.conf``.*?::\n\n(.*?)\n\n", str(example.__doc__), re.DOTALL)
    return [line.strip() for line in found[1].splitlines()]


class Client:
    """A client of the test, which publishes in order and collects the messages of a topic."""

    def __init__(self, port, name, topic=None):
        self.received = []
        ready = threading.Event()
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=mqtt.MQTTv5)
        self.client.on_message = lambda client, userdata, message: self.received.append(message.payload)
        self.client.on_subscribe = lambda *_: ready.set()
        self.client.on_connect = lambda *_: self.client.subscribe(topic, qos=1) if topic else ready.set()
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        assert ready.wait(30)

    def publish(self, sent):
        for each in sent:
            properties = Properties(PacketTypes.PUBLISH)
            properties.UserProperty = ("number", str(each.number))
            properties.UserProperty = ("time", f"{each.time}Z")
            # A text that paho's own reader would end the connection over.
            properties.UserProperty = ("note", "\ufeff")
            self.client.publish(each.topic, each.payload, qos=1, properties=properties)

    def close(self):
        self.client.disconnect()
        self.client.loop_stop()


class Service:
    """The example in a process that may be killed and started again."""

    def __init__(self, folder, port):
        self.process = None
        self.log, self.checkpoint = folder / "service.log", folder / "model.npz"
        # Checkpoints so frequent that a good part of the kills falls into them.
        options = {"port": port, "topic": "plant/+", "metrics-port": 0, "checkpoint": self.checkpoint}
        options |= {"quantile": QUANTILE, "every-seconds": 0.2}
        self.command = [sys.executable, "-W", "error", str(SCRIPT), "--features", *NAMES]
        self.command += [word for name, value in options.items() for word in (f"--{name}", str(value))]

    def start(self):
        paths = {"PYTHONPATH": str(Path(streamkpca.__file__).parents[1])}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=os.environ | paths)
        wait_until(lambda: "subscribed" in self.text(), "the service has subscribed")

    def text(self):
        return self.log.read_text(encoding="utf-8")

    def metrics(self):
        (url,) = re.findall(r"metrics: (\S+)", self.text())
        with urllib.request.urlopen(url, timeout=30) as answer:
            families = list(parser.text_string_to_metric_families(answer.read().decode()))
        return {"/".join([each.name, *each.labels.values()]): each.value for one in families for each in one.samples}

    def n_handled(self):
        found = self.metrics()
        return found["streamkpca_rows_total"] + found["streamkpca_rejected_total/malformed"]

    def saved(self):
        return Checkpointer(self.checkpoint).latest()


@pytest.mark.skipif(MOSQUITTO is None, reason="needs the broker Mosquitto (Debian: mosquitto)")
def test_killed_at_random_moments_it_counts_every_message_once(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    # Mosquitto drops root's rights, and could not write here then.
    changes = [f"listener {port} 127.0.0.1", f"persistence_location {tmp_path}/", "user root"]
    replaced = {line.split()[0] for line in changes}
    lines = changes + [line for line in settings_of_the_guide() if line.split()[0] not in replaced]
    (tmp_path / "mosquitto.conf").write_text("\n".join([*lines, ""]), encoding="utf-8")
    sent, pause, service = messages(MESSAGES, seed=0), random.Random(1), Service(tmp_path, port)
    broker = subprocess.Popen([str(MOSQUITTO), "-c", str(tmp_path / "mosquitto.conf")], stderr=subprocess.DEVNULL)

    def answers():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(answers, "the broker answers")
        service.start()
        publisher, alarms = Client(port, "publisher"), Client(port, "listener", "alarms")
        for share in np.array_split(np.arange(len(sent)), KILLS + 1):
            publisher.publish([sent[i] for i in share])
            # As a publisher does that was not told that these had come.
            publisher.publish([sent[i] for i in share[-5:]])
            before = service.n_handled()
            wait_until(lambda before=before: service.n_handled() > before, "the first message is handled")
            if share[-1] + 1 < len(sent):
                time.sleep(pause.uniform(0.0, 0.15))
                service.process.kill()
                service.process.wait(30)
                service.start()
        wait_until(lambda: service.n_handled() >= len(sent), "all messages are handled")
        monitor, learned = expect(sent)
        over = {event.start: as_alarm(event, learned[event.start]) for event in monitor.events_ if not event.is_open}

        def received(is_open):
            every = map(json.loads, list(alarms.received))
            return {alarm["start"]: alarm for alarm in every if alarm["is_open"] is is_open}

        wait_until(lambda: len(received(False)) >= len(over), "all alarms have come")
        metrics = service.metrics()
        service.process.terminate()
        assert service.process.wait(30) == 0, service.text()
        assert received(False) == over
        assert received(True).keys() == {event.start for event in monitor.events_}
        in_events = {row for event in monitor.events_ for row in range(event.start, event.end)}
        strange = {row for row, message in enumerate(learned) if message.strange}
        # Where several come within 200 rows, the most strange one is told.
        assert len(strange) > 2 * len(strange - in_events)
        publisher.close()
        alarms.close()
    finally:
        if service.process is not None:
            service.process.kill()
        broker.kill()
        broker.wait(30)
    saved = service.saved()
    counts = Counter(saved.extra_["counts"])
    assert saved.to_bytes() == monitor.to_bytes()
    n_garbage = sum(message.row is None for message in sent)
    assert counts["malformed"] == metrics["streamkpca_rejected_total/malformed"] == n_garbage
    assert metrics["streamkpca_rejected_total/not finite"] == len(sent) - n_garbage - len(learned) > 0
    assert metrics["streamkpca_rows_total"] == len(sent) - n_garbage
    assert counts["restart"] == metrics["streamkpca_missing"] == 0
    assert counts["repeated"] >= 5 * (KILLS + 1) - len(GARBAGE)
    assert metrics["streamkpca_events_total"] == monitor.n_events_ > 10
    assert metrics["streamkpca_alarms_total"] == sum(event.n_alarms for event in monitor.events_)


# Without a broker


@pytest.fixture
def service(tmp_path, monkeypatch):
    """Make a service in this process, whose connection is a mock."""
    set_options(monkeypatch, tmp_path)
    made = example.Service(example.checked_options())
    made.client = Mock()
    return made


def set_options(monkeypatch, folder, *more):
    options = ["--topic", "plant/+", "--features", *NAMES, "--checkpoint", str(folder / "model.npz"), *more]
    monkeypatch.setattr("sys.argv", ["sensor_service.py", *options])


def message_with(*pairs, number=1, payload=b"[1, 2, 3]"):
    properties = example.Properties(example.PacketTypes.PUBLISH)
    for pair in pairs:
        properties.UserProperty = pair
    message = example.MQTTMessage(number, b"plant/pump")
    message.properties, message.payload, message.qos = properties, payload, 1
    return message


def deliver(service, number, row=(1, 2, 3), *more):
    payload = json.dumps(list(row)).encode()
    message = message_with(("number", str(number)), *more, number=number, payload=payload)
    service._on_message(service.client, None, message)


def published(service):
    return [json.loads(call.args[1]) for call in service.client.publish.call_args_list]


def test_what_cannot_be_saved_is_not_acknowledged(service, monkeypatch):
    deliver(service, 1)
    with monkeypatch.context() as broken:
        broken.setattr(service.checkpoints, "save", Mock(side_effect=OSError(28, "No space left on device")))
        assert not service._save()
        service.client.ack.assert_not_called()
        deliver(service, 2)
    assert service._save()
    assert [call.args for call in service.client.ack.call_args_list] == [(1, 1), (2, 1)]
    assert service.counts["failed saves"] == 1


def test_a_message_that_cannot_be_learned_is_counted_and_acknowledged(service, monkeypatch, caplog):
    with monkeypatch.context() as broken:
        broken.setattr(Monitor, "update", Mock(side_effect=MemoryError()))
        deliver(service, 7)
    deliver(service, 8)
    assert service._save()
    assert [call.args for call in service.client.ack.call_args_list] == [(7, 1), (8, 1)]
    assert (service.counts["failed"], service.counts["rows"]) == (1, 1)
    assert "a message is left out" in caplog.text


def test_alarms_that_a_kill_left_unconfirmed_are_published_again(service, tmp_path, monkeypatch):
    packets = iter(range(1, 10_000))
    service.client.publish.side_effect = lambda *_, **__: Mock(mid=next(packets))
    for _ in range(5000):
        service._publish("x" * 200)
    # They are bounded.
    kept = example.MOST_ALARM_CHARACTERS // 200
    assert len(service.unconfirmed) == kept == 5000 - service.counts["alarms given up"]
    for packet in range(3, kept + 1):
        service._on_publish(service.client, None, packet, Mock(is_failure=False), None)
    assert service._save()
    assert Checkpointer(tmp_path / "model.npz").latest().extra_["alarms"] == ["x" * 200] * 2
    assert list(example.Service(example.checked_options()).unconfirmed.values()) == ["x" * 200] * 2


STATE = {"features": NAMES, "arrivals": {}, "counts": {}, "time": None, "opened": None, "alarms": []}


@pytest.mark.parametrize(
    "extra",
    [
        {"offset": 3},
        "text",
        {**STATE, "arrivals": {"topics": [[1, 2]]}},
        {**STATE, "time": "noon"},
        {**STATE, "features": ["flow"]},
    ],
)
def test_checkpoints_of_others_end_the_process_with_a_clear_error(tmp_path, monkeypatch, extra):
    Checkpointer(tmp_path / "model.npz").save(Monitor(), extra)
    set_options(monkeypatch, tmp_path)
    with pytest.raises(SystemExit, match="is not from this service, or of other features; pass"):
        example.Service(example.checked_options())


def test_alarms_tell_when_how_much_and_which_feature(service):
    rows = np.random.default_rng(0).normal(size=(1050, 3))
    rows[1000:1020, 1] += np.geomspace(8.0, 100.0, 20)
    for i, row in enumerate(rows):
        at = FIRST_TIME.astype("datetime64[s]") + i
        deliver(service, i + 1, row, ("time", f"{at}+00:00"))
    begun, *between, over = [alarm for alarm in published(service) if alarm["start"] == 1000]
    assert (begun["topic"], begun["number"], begun["is_open"], begun["n_alarms"]) == ("plant/pump", 1001, True, 1)
    assert (over["number"], over["is_open"], over["n_alarms"]) == (1001, False, 20)
    assert (over["start_time"], over["peak_time"]) == ("2024-02-28T12:16:40.000000Z", "2024-02-28T12:16:59.000000Z")
    cause = over["features"][0]
    assert (cause["feature"], cause["direction"]) == ("pressure", "above")
    assert cause["low"] < cause["expected"] < cause["high"] < cause["value"]
    assert (cause["since"], cause["since_time"]) == (1000, over["start_time"])
    assert all(alarm["is_open"] for alarm in between)
    severities = [alarm["severity"] for alarm in [begun, *between]]
    assert all(later >= 2.0 * earlier for earlier, later in itertools.pairwise(severities))
    assert over["severity"] < 2.0 * severities[-1]


def test_a_lasting_change_is_published_once(service):
    service.monitor.accept_after = 100
    rows = np.random.default_rng(0).normal(size=(1000, 3))
    rows[800:] += 20.0
    for i, row in enumerate(rows):
        deliver(service, i + 1, row)
    (change,) = [alarm for alarm in published(service) if "detected" in alarm]
    assert (change["start"], change["is_accepted"]) == (800, True)
    assert change["number"] == change["detected"]
    assert {feature["feature"] for feature in change["features"]} <= set(NAMES)


def test_what_users_say_of_an_event_ends_it_is_taken_in_once_and_is_kept(service, tmp_path):
    rows = np.random.default_rng(0).normal(size=(600, 3))
    rows[500] += 12.0
    rows[501] -= 12.0

    def say(payload):
        message = example.MQTTMessage(1, b"feedback")
        message.payload, message.qos = payload, 1
        service._on_message(service.client, None, message)

    for i, row in enumerate(rows):
        deliver(service, i + 1, row)
        if i == 500:
            say(b'{"confirm": 500}')
    told = [(alarm["start"], alarm["number"], alarm["is_open"]) for alarm in published(service)]
    begun = told.index((500, 501, True))
    assert told[begun + 1 : begun + 4] == [(500, 501, False), (501, 502, True), (501, 502, False)]
    for _ in range(2):
        say(b'{"accept": 501}')
    for wrong in (b"", b"[1]", b'{"accept": 3}', b'{"forget": 500}', b"[" * 5000):
        say(wrong)
    assert (service.counts["feedback"], service.counts["malformed"], service.counts["rows"]) == (2, 5, 600)
    assert service._save()
    saved = Checkpointer(tmp_path / "model.npz").latest()
    assert {one.start: one.feedback for one in saved.events_ if one.feedback} == {500: "confirmed", 501: "accepted"}
    for i, row in enumerate(np.tile(rows[501], (20, 1))):
        deliver(service, 601 + i, row)
    assert not service.monitor.record_.is_alarm.any()


def test_times_of_messages_ascend_and_are_not_in_the_future(service):
    def taken(text):
        deliver(service, service.n_unsaved + 1, [1, 2, 3], *([("time", text)] if text is not None else []))
        return str(service.time)

    assert taken("2024-02-28T14:00:00+02:00") == "2024-02-28T12:00:00.000000"
    assert taken("2024-02-28T12:00:01Z") == taken("2023-01-01") == taken("2024-02-28T12:00:01")
    for wrong in ("noon", "", "0001-01-01T00:00+14:00"):
        assert taken(wrong) == "2024-02-28T12:00:01.000000"
    assert service.counts["malformed"] == 3
    assert taken("9999-12-31") < taken(None)
    assert service.counts["rows"] == 6


# The numbers of messages, beside sets that remember everything


def reloaded(made):
    return example.Arrivals(**json.loads(json.dumps(made.record())))


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2**63 - 1) | st.integers(0, 9)), max_size=60),
    st.lists(st.sampled_from(["take", "take", "take", "save", "kill", "disconnect"]), max_size=150),
    st.integers(1, 8),
)
def test_any_numbers_and_kills_leave_each_message_counted_once(sent, events, window):
    """A broker sends again what is not acknowledged, at most as many as the service remembers."""
    waiting = [(topic, number, b"%d" % i, False) for i, (topic, number) in enumerate(sent)]
    unacknowledged = []
    # With so small bounds everything else is given up all the time.
    with patch.multiple(example, MOST_LATEST=window, MOST_TOPICS=1):
        made, counted = example.Arrivals(), Counter[bytes]()
        saved, saved_counted = reloaded(made), counted.copy()
        for event in [*events, *["take", "save"] * len(sent), "take"]:
            if event == "take" and waiting and len(unacknowledged) < window:
                topic, number, payload, is_redelivered = waiting.pop(0)
                unacknowledged.append((topic, number, payload, is_redelivered))
                if made.note(topic, number, payload, is_redelivered=is_redelivered) != "repeated":
                    counted[payload] += 1
            if event == "save":
                saved, saved_counted = reloaded(made), counted.copy()
                # It may be killed before its acknowledgements leave; here, every other time.
                if len(counted) % 2 or len(unacknowledged) == window:
                    unacknowledged.clear()
            if event == "kill":
                made, counted = reloaded(saved), saved_counted.copy()
            if event in ("kill", "disconnect"):
                waiting[:0] = [(topic, number, payload, True) for topic, number, payload, _ in unacknowledged]
                unacknowledged.clear()
    assert counted == Counter({b"%d" % i: 1 for i in range(len(sent))})


def verdicts(made, numbers, row=b""):
    """Judge messages with these numbers, whose payloads are `row` and the number."""
    return [made.note("plant/pump", number, row + b"%d" % number) for number in numbers]


def test_late_repeated_and_huge_numbers_are_learned_once():
    made = example.Arrivals()
    assert verdicts(made, [5, 9, 7, 3, 7, 3, 6]) == ["new", "new", "new", "new", "repeated", "repeated", "new"]
    assert made.missing == 2
    made = example.Arrivals()
    assert verdicts(made, [1, 2, 10**18, *range(3, 50)]) == ["new", "new", "jump", "restart", *["new"] * 46]
    assert verdicts(made, [49, 48]) == ["repeated", "repeated"]
    assert made.missing == 0


@pytest.mark.parametrize(("first", "n"), [(0, 1), (1, 2), (0, 500), (1, 1000)])
def test_a_publisher_that_begins_again_is_noticed(first, n):
    made = example.Arrivals()
    assert set(verdicts(made, range(first, n + first), b"a")) == {"new"}
    assert verdicts(made, range(first, n + first), b"b") == ["restart", *["new"] * (n - 1)]
    assert verdicts(made, range(first, n + first), b"b") == ["repeated"] * n
    # With the same rows it is noticed once more have come than may be unconfirmed.
    same = example.Arrivals()
    verdicts(same, range(first, 1003))
    assert verdicts(same, range(first, 1003)) == ["restart", *["new"] * (1002 - first)]


def test_the_state_stays_small_and_comes_back():
    with patch.multiple(example, MOST_LATEST=50, MOST_TOPICS=20):
        made = example.Arrivals()
        for i in range(300):
            made.note(f"{i % 40}", 3 * i, b"")
        assert len(made.latest) == 50
        assert len(made.topics) == 20
        assert made.given_up > 100
        again = reloaded(made)
    assert again.record() == made.record()
    assert again.missing == made.missing == sum(series.missing for series in made.topics.values())
