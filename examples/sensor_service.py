"""A service that must not stop
============================

This service watches sensor messages from an MQTT broker with a `Monitor`, publishes alarms and serves metrics.

Step by step, on one machine with Debian's packages ``mosquitto`` and ``mosquitto-clients``. Debian starts a broker of
its own; ``sudo systemctl disable --now mosquitto`` ends it.

1. In a checkout, with a virtual environment: ``pip install ".[service]"``, because it needs the extra ``service``
2. Write ``mosquitto.conf``. By default Mosquitto forgets everything when it ends, drops all but 1,000 waiting
   messages, and allows only 20 unacknowledged ones. After a crash it goes on from what it wrote last::

       listener 1883 127.0.0.1
       allow_anonymous true
       persistence true
       persistence_location ./
       autosave_interval 60
       max_queued_messages 0
       max_inflight_messages 1000

3. Start the broker, not as root: ``/usr/sbin/mosquitto -c mosquitto.conf``
4. In another shell, start the service; stop it with Ctrl-C, SIGTERM or, if you like, SIGKILL::

       python examples/sensor_service.py --topic "plant/+" --features flow pressure heat --checkpoint plant.npz

5. Publish: ``mosquitto_pub -V 5 -q 1 -t plant/pump -D publish user-property number 1 -m "[0.1, 0.2, 0.3]"``
   (the first message after the installation takes some seconds, as the library compiles its loops)
6. Watch: ``curl http://127.0.0.1:9464/metrics`` and ``mosquitto_sub -t alarms``

**Messages.** A payload is a JSON list of numbers, one for each of ``--features``. Rows with null, NaN or infinity are
counted and not learned; any other payload is counted as malformed. Publishers number the messages of each topic 1, 2,
3, ... (or from 0) in a user property ``number`` (MQTT 5), and may give the time of measurement in another, ``time``, in
ISO format and UTC unless it says otherwise. Without one, or with a later one, the time of arrival counts; a time before
that of the last row counts as that one. All topics share a model, so they should be machines of one kind. The broker
drops messages of more than 16,384 bytes and 64 for each feature.

**Alarms** are JSON: the topic and number of the message that began them, and the monitor's `Event` with its times,
severity, kind and features, for each of these its value, the expected one with a range, the direction and since when.
It is published when it begins, whenever its rarity has doubled, and when it is over (``is_open`` false). A lasting
change is published as a `Change` when it is detected; it is not learned.

**Feedback** on events, on the topic of ``--feedback-topic``: ``{"accept": 1234}`` for one that was fine, or
``{"confirm": 1234}`` for a fault, with the ``start`` of the event::

    mosquitto_pub -V 5 -q 1 -t feedback -m '{"accept": 1234}'

Rows like its rows then raise no alarm, or always do. An open event ends with what is said of it. What was said twice
counts once.

**Every message is counted exactly once**, whenever the process is killed:

* The broker keeps messages until they are acknowledged (quality of service 1, and a session that outlives the
  connection), and they are when a checkpoint that holds them is on the disk. So none is lost, but some come again.
* The checkpoint holds the series of numbers of each topic, and fingerprints of the latest 65,536 messages (topic,
  number and payload), so repeated ones are recognised. The broker repeats no earlier ones: it waits while 1,000 are
  unacknowledged. The number is not in the payload, so that malformed messages, too, count once.
* Alarms that the broker has not confirmed are in the checkpoint and are published again: they arrive at least once.
* All this happens in one thread. Only metrics are read in another, which the monitor allows.

A message is repeated if its number is in the present series of its topic, and the same message is among the latest. It
begins a new series (a restart) if its number has come before with another payload, or is more than 1,000 below the
series, or is 0 or 1 and more than 1,000 have followed; or (a jump) if it is more than a million above the series. All
others are learned, late ones too; a message of a restarted publisher may pass for one that was missing.

Messages may be lost or count twice if they have no number or quality of service 0, or if the broker loses its memory.
Messages of a restarted publisher that equal earlier ones, number and payload, count as repeated. Beyond 10,000 topics
the one that was silent for longest is forgotten, and beyond 300,000 characters of unconfirmed alarms further ones are
not published. Run one process at a time: the client identifier, by which the broker knows the session, and the
checkpoints are its own. A second one with the same ``--metrics-port`` refuses to start.

**A remote broker** needs TLS and a password, which is the environment variable ``MQTT_PASSWORD``. Pass these besides
the options above: ``--host broker.example --ca-file ca.crt --user plant``
"""

import argparse
import base64
import hashlib
import json
import logging
import os
import re
import signal
import ssl
import time
import traceback
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamkpca import Checkpointer
from streamkpca.monitoring import Change, Event, Monitor, MonitorRecord

try:
    import paho.mqtt.properties
    from paho.mqtt.client import Client, MQTTMessage, MQTTv5, topic_matches_sub
    from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties
    from paho.mqtt.subscribeoptions import SubscribeOptions
    from prometheus_client import CollectorRegistry, Histogram, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
except ModuleNotFoundError as error:
    raise SystemExit(f'sensor_service.py needs {error.name}; pip install "streamkpca[service]"') from None

RETRY_SECONDS, NOTICE_SECONDS = 1.0, 10.0
# Most messages between checkpoints. The broker sends as many before it waits for acknowledgements, that is for a
# checkpoint; if that were due later, both would wait for each other.
MOST_UNSAVED = 1000
LEAP = 1_000_000
# A checkpoint's JSON text holds 4 MiB and 262,144 values. With these bounds the state takes at most half of it.
MOST_LATEST, MOST_TOPICS, MOST_ALARM_CHARACTERS = 65_536, 10_000, 300_000
# A packet full of properties takes paho about as long as learning that many bytes of rows; a larger one, longer.
PACKET_BYTES, PACKET_BYTES_A_FEATURE = 16_384, 64
BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
log = logging.getLogger("sensor_service")


def read_text(buffer: bytes, most: int) -> tuple[str, int]:
    """Read a string of a packet, and tell where it ends."""
    stop = 2 + int.from_bytes(buffer[:2], "big")
    return bytes(buffer[2:stop]).decode("utf-8", "replace"), stop


# The broker forwards strings with U+FEFF, as MQTT 5 demands (1.5.4-3). paho's own function ends the connection over
# one; the broker would then send the message again, for ever.
paho.mqtt.properties.readUTF = read_text


def fingerprint(data: bytes) -> int:
    """Return 64 bits that other data has by chance once in 10^19 cases."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


class Series(NamedTuple):
    """The numbers of a topic that have arrived: all from the first to the highest, but for some that are missing."""

    first: int
    highest: int
    missing: int = 0


def judged(series: Series, number: int, *, is_known: bool, is_redelivered: bool) -> tuple[str, Series]:
    """Judge a message by its number, and return the series with it; `is_known` if it is among the latest messages."""
    first, highest, missing = series
    is_inside = first <= number <= highest
    # Publishers repeat what was not confirmed; that cannot be the first of so many.
    begins_again = number <= 1 and highest - number > MOST_UNSAVED
    if is_known and (is_redelivered or (is_inside and not begins_again)):
        return "repeated", series
    if first < number < highest and missing:
        return "new", series._replace(missing=missing - 1)
    if is_inside or first - number > MOST_UNSAVED:
        return "restart", Series(number, number)
    if number - highest > LEAP:
        return "jump", Series(number, number)
    skipped = max(first - number, number - highest) - 1
    return "new", Series(min(first, number), max(highest, number), missing + skipped)


class Arrivals:
    """The latest messages, by fingerprints, and the series of numbers of each topic, within fixed bounds."""

    def __init__(self, latest: str = "", topics: Iterable[list[int]] = (), given_up: int = 0) -> None:
        marks = np.frombuffer(base64.b64decode(latest, validate=True), dtype="<u8").tolist()
        self.latest: OrderedDict[int, None] = OrderedDict.fromkeys(marks)
        # By fingerprints, as names may be long; the topic that was silent for longest comes first.
        self.topics = OrderedDict((key, Series(*numbers)) for key, *numbers in topics)
        self.missing = sum(series.missing for series in self.topics.values())
        self.given_up = given_up

    def note(self, topic: str, number: int, payload: bytes, *, is_redelivered: bool = False) -> str:
        """Record a message, and tell whether it is new, repeated, a restart or a jump."""
        key = fingerprint(topic.encode())
        mark = fingerprint(b"%d %d %s" % (key, number, payload))
        is_known, before = mark in self.latest, self.topics.pop(key, None)
        if before is None:
            verdict, series = "repeated" if is_known else "new", Series(number, number)
        else:
            verdict, series = judged(before, number, is_known=is_known, is_redelivered=is_redelivered)
            self.missing -= before.missing
        self.missing += series.missing
        self.topics[key], self.latest[mark] = series, None
        self.latest.move_to_end(mark)
        if len(self.latest) > MOST_LATEST:
            self.latest.popitem(last=False)
        if len(self.topics) > MOST_TOPICS:
            self.missing -= self.topics.popitem(last=False)[1].missing
            self.given_up += 1
        return verdict

    def record(self) -> dict[str, Any]:
        """Return the arguments that make an equal object, for JSON."""
        marks = np.fromiter(self.latest, dtype="<u8", count=len(self.latest))
        topics = [[key, *series] for key, series in self.topics.items()]
        return {"latest": base64.b64encode(marks.tobytes()).decode(), "topics": topics, "given_up": self.given_up}


def number_of(given: dict[str, str]) -> int | None:
    """Return the number among the user properties of a message; None without a valid one."""
    text = given.get("number", "")
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else None


def time_of(given: dict[str, str], last: np.datetime64 | None) -> np.datetime64:
    """Return the time among them, by default now; not later, and not before the last one."""
    now = datetime.now(UTC)
    found = datetime.fromisoformat(given["time"]) if "time" in given else now
    found = min(now, found if found.tzinfo else found.replace(tzinfo=UTC))
    in_utc = np.datetime64(found.astimezone(UTC).replace(tzinfo=None), "us")
    return in_utc if last is None else max(in_utc, last)


def row_of(payload: bytes, n_features: int) -> npt.NDArray[np.float64]:
    """Read the row in a message, or raise ValueError."""
    try:
        values = json.loads(payload)
        # Not isinstance: True and False are integers.
        if isinstance(values, list) and all(type(value) in (int, float, type(None)) for value in values):
            row = np.array(values, dtype=np.float64)
            if row.shape == (n_features,):
                return row
    except (OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None
    raise ValueError(f"expected a JSON list of {n_features} numbers")


def as_text(found: Event | Change, names: list[str], **more: Any) -> str:
    """Return an event or a change as JSON, its features by their names and its times in UTC."""
    named = {"features": [{**feature._asdict(), "feature": names[feature.feature]} for feature in found.features]}
    if isinstance(found, Event):
        named["ranking"] = [names[feature] for feature in found.ranking]
    return json.dumps(
        {**more, **vars(found), **named}, default=lambda time: np.datetime_as_string(time, timezone="UTC")
    )


class Service:
    """A monitor of a broker's messages, with the state that it needs to resume after a kill."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.stopping = False
        try:
            self.checkpoints = Checkpointer(options.checkpoint)
            self.monitor: Monitor = self.checkpoints.latest() or Monitor(quantile=options.quantile)
        except (OSError, ValueError) as error:
            raise SystemExit(f"sensor_service: {error}") from None
        self.next_notices: dict[str, float] = {}
        self.n_unsaved = 0
        self.next_save = self.next_connection = 0.0
        # Packet identifiers: of messages in this connection, and of alarms that are not confirmed yet.
        self.unacknowledged: list[int] = []
        self.unconfirmed: dict[int, str] = {}
        self.registry = CollectorRegistry()
        self.registry.register(self)
        text = "Time from a message's arrival until it is scored and learned."
        self.latency = Histogram("streamkpca_message_seconds", text, buckets=BUCKETS, registry=self.registry)
        self.client = self._client()
        self._restore(self.monitor.extra_)

    def run(self) -> None:
        """Work until `stopping` is set; then save, acknowledge and return."""
        while not self.stopping:
            self._turn()
        is_saved = self._save()
        self.client.disconnect()
        if not is_saved:
            raise SystemExit("sensor_service: the last messages could not be saved; the broker will send them again")
        log.info("stopped after %d rows", self.counts["rows"])

    def _restore(self, extra: Any) -> None:
        """Take over the state of a checkpoint, and publish its unconfirmed alarms again."""
        wanted = self.options.features
        if extra is None:
            extra = {"features": wanted, "arrivals": {}, "counts": {}, "time": None, "opened": None, "alarms": []}
        try:
            self.arrivals, self.counts = Arrivals(**extra["arrivals"]), Counter[str](extra["counts"])
            self.time = None if extra["time"] is None else np.datetime64(extra["time"])
            self.opened, alarms, is_ours = extra["opened"], list(extra["alarms"]), extra["features"] == wanted
        except (LookupError, TypeError, ValueError):
            is_ours = False
        if not is_ours:
            raise SystemExit(
                f"sensor_service: the newest checkpoint of {self.options.checkpoint} is not from this service, or of "
                "other features; pass another --checkpoint, or its --features"
            )
        for alarm in alarms:
            self._publish(alarm)

    def _client(self) -> Client:
        options = self.options
        client = Client(CallbackAPIVersion.VERSION2, client_id=options.client_id, protocol=MQTTv5, manual_ack=True)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        if options.tls is not None:
            client.tls_set_context(options.tls)
        if options.user is not None:
            client.username_pw_set(options.user, os.environ.get("MQTT_PASSWORD"))
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 0xFFFFFFFF  # It never ends.
        properties.MaximumPacketSize = PACKET_BYTES + PACKET_BYTES_A_FEATURE * len(options.features)
        # A broker with a lower limit of its own (max_inflight_messages) waits earlier; then --every-seconds makes slow
        # progress.
        properties.ReceiveMaximum = MOST_UNSAVED
        client.connect_async(options.host, options.port, clean_start=False, properties=properties)
        return client

    def _turn(self) -> None:
        """Take the messages that arrive within a moment, and save if that is due."""
        if self.client.loop(0.1) != MQTTErrorCode.MQTT_ERR_SUCCESS:
            self._connect()
        # Messages count, not rows: malformed ones, too, wait for their acknowledgement.
        is_late = self.checkpoints.seconds_since_save >= self.options.every_seconds
        is_due = self.n_unsaved >= MOST_UNSAVED or (self.n_unsaved and is_late)
        if is_due and time.monotonic() >= self.next_save:
            self._save()

    def _connect(self) -> None:
        if time.monotonic() < self.next_connection:
            time.sleep(0.1)
            return
        # On another connection the same identifier may belong to another message. All messages come again.
        self.unacknowledged.clear()
        self.next_connection = time.monotonic() + RETRY_SECONDS
        try:
            self.client.reconnect()
        except OSError as error:
            self._say("no broker at %s:%d: %s", self.options.host, self.options.port, error)

    def _save(self) -> bool:
        """Write a checkpoint, then acknowledge what it holds; tell whether it could be written."""
        extra = {
            "features": self.options.features,
            "arrivals": self.arrivals.record(),
            "counts": self.counts,
            "time": None if self.time is None else str(self.time),
            "opened": self.opened,
            "alarms": list(self.unconfirmed.values()),
        }
        try:
            self.checkpoints.save(self.monitor, extra)
        # Whatever it is, a process that ends would meet it again.
        except Exception as error:
            self.counts["failed saves"] += 1
            self.next_save = time.monotonic() + RETRY_SECONDS
            self._say("cannot save, and acknowledge nothing until that works: %s", error)
            return False
        self.n_unsaved = 0
        for packet in self.unacknowledged:
            self.client.ack(packet, 1)
        self.unacknowledged.clear()
        return True

    def _take(self, message: MQTTMessage) -> None:
        """Count a message, and learn it unless it is repeated."""
        if message.topic == self.options.feedback_topic:
            self._take_feedback(message.payload)
            return
        topic, given = message.topic, dict(getattr(message.properties, "UserProperty", []))
        number = number_of(given)
        if number is None:
            self.counts["bad number"] += 1
            self._say("%.100r: expected a user property 'number' of at most 18 digits", topic)
            return
        verdict = self.arrivals.note(topic, number, message.payload, is_redelivered=message.dup)
        self.counts[verdict] += 1
        if verdict in ("restart", "jump"):
            self._say("%.100r: its numbers begin anew, with %d", topic, number)
        if verdict == "repeated":
            return
        try:
            row, at = row_of(message.payload, len(self.options.features)), time_of(given, self.time)
            if not np.isfinite(row).all():
                self.counts["not finite"] += 1
                return
            record = self.monitor.update([row], time=[at])
        except (OverflowError, ValueError) as error:
            self.counts["malformed"] += 1
            self._say("%.100r, number %d: %s", topic, number, error)
            return
        self.time = at
        self.counts["rows"] += 1
        self.counts["alarms"] += int(record.is_alarm[0])
        self._report(topic, number, record)

    def _take_feedback(self, payload: bytes) -> None:
        """Take in what a user says of an event."""
        try:
            ((verb, start),) = json.loads(payload).items()
            judge = {"accept": self.monitor.accept, "confirm": self.monitor.confirm}[verb]
            event = next(event for event in self.monitor.events_ if event.start == start)
            # The broker may send it again.
            if not (event.feedback or "").startswith(verb):
                judge(event)
                self.counts["feedback"] += 1
                if event.is_open:
                    # That ended it, and the next alarm begins another one.
                    self._publish_event(self.opened)
                    self.opened = None
        except (AttributeError, LookupError, RecursionError, StopIteration, TypeError, ValueError) as error:
            self.counts["malformed"] += 1
            self._say(
                'feedback %.100r: expected {"accept": start} or {"confirm": start} of a known event: %s', payload, error
            )

    def _report(self, topic: str, number: int, record: MonitorRecord) -> None:
        """Publish an event that has begun, grown or ended, and a change that was just detected."""
        n_rows, rarity = self.monitor.n_rows_, float(record.rarity[0])
        begun = self.opened or {"topic": topic, "number": number, "rarity": 0.0, "end": n_rows}
        if record.is_alarm[0]:
            is_news = rarity >= 2.0 * begun["rarity"]
            self.opened = {**begun, "rarity": rarity if is_news else begun["rarity"], "end": n_rows}
        else:
            is_news = self.opened is not None and n_rows - begun["end"] >= self.monitor.end_after
            self.opened = None if is_news else self.opened
        if is_news:
            self._publish_event(begun)
        change = self.monitor.change_detected_
        if change is not None and change.detected == self.monitor.n_rows_:
            self._publish(as_text(change, self.options.features, topic=topic, number=number))

    def _publish_event(self, begun: dict[str, Any]) -> None:
        """Publish the latest event, with the message that began it."""
        # Only for news, as what explains an open event is found whenever it is read.
        event = self.monitor.events_[-1]
        self._publish(as_text(event, self.options.features, topic=begun["topic"], number=begun["number"]))

    def _say(self, text: str, *values: Any) -> None:
        """Log a warning, at most one of each kind in ten seconds; metrics count what they are about."""
        if time.monotonic() >= self.next_notices.get(text, 0.0):
            self.next_notices[text] = time.monotonic() + NOTICE_SECONDS
            log.warning(text, *values)

    def _publish(self, alarm: str) -> None:
        if sum(map(len, self.unconfirmed.values())) + len(alarm) > MOST_ALARM_CHARACTERS:
            self.counts["alarms given up"] += 1
            self._say("the broker confirms no alarms; one that is not published: %.200s", alarm)
            return
        # It is queued if there is no connection.
        self.unconfirmed[self.client.publish(self.options.alarm_topic, alarm, qos=1).mid] = alarm

    def _on_publish(self, client: Client, userdata: Any, packet: int, reason: Any, properties: Any) -> None:
        self.unconfirmed.pop(packet, None)
        if reason.is_failure:
            self._say("the broker refuses an alarm: %s", reason)

    def _on_connect(self, client: Client, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._say("the broker refuses the connection: %s", reason)
            return
        log.info("connected: %s, session %s", reason, "resumed" if flags.session_present else "new")
        # Retained messages would come at every connection, as new ones.
        wanted = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
        client.subscribe([(topic, wanted) for topic in (self.options.topic, self.options.feedback_topic)])

    def _on_disconnect(self, client: Client, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if not self.stopping:
            self.counts["connections lost"] += 1
            self._say("disconnected: %s", reason)

    def _on_subscribe(self, client: Client, userdata: Any, packet: int, reasons: Any, properties: Any) -> None:
        for topic, reason in zip((self.options.topic, self.options.feedback_topic), reasons, strict=True):
            if reason.is_failure:
                raise SystemExit(f"sensor_service: the broker refuses the topic {topic}: {reason}")
        log.info("subscribed to %s", self.options.topic)

    def _on_message(self, client: Client, userdata: Any, message: MQTTMessage) -> None:
        try:
            with self.latency.time():
                self._take(message)
        # Whatever it is, the broker would send the message again to the next process.
        except Exception:
            self.counts["failed"] += 1
            self._say("a message is left out\n%s", traceback.format_exc())
        self.n_unsaved += 1
        if message.qos:
            self.unacknowledged.append(message.mid)

    def collect(self) -> Iterator[Metric]:
        """Read the metrics for a scrape, in another thread; counters continue after a restart."""
        counts, model = self.counts, self.monitor.model
        for name, text, value in (
            ("rows", "Rows, those that were not finite too.", counts["rows"] + counts["not finite"]),
            ("repeated", "Messages that came again.", counts["repeated"]),
            ("restarts", "Times that a topic's numbers began again.", counts["restart"]),
            ("jumps", "Times that a topic's numbers leapt a million.", counts["jump"]),
            ("alarms", "Rows above the threshold of their time.", counts["alarms"]),
            ("feedback", "Events that users have judged.", counts["feedback"]),
            ("events", "Runs of alarms.", self.monitor.n_events_ if counts["rows"] else 0),
            ("failed_saves", "Checkpoints not written.", counts["failed saves"]),
            ("connections_lost", "Times that the broker's connection ended.", counts["connections lost"]),
        ):
            yield CounterMetricFamily(f"streamkpca_{name}", text, value)
        rejected = CounterMetricFamily("streamkpca_rejected", "Messages that taught nothing.", labels=["reason"])
        for reason in ("not finite", "malformed", "bad number", "failed"):
            rejected.add_metric([reason], counts[reason])
        yield rejected
        forgotten = CounterMetricFamily("streamkpca_given_up", "What did not fit in the state.", labels=["what"])
        forgotten.add_metric(["topics"], self.arrivals.given_up)
        forgotten.add_metric(["alarms"], counts["alarms given up"])
        yield forgotten
        basis = (model.n_atoms_, model.unexplained_energy_ratio_) if model.__sklearn_is_fitted__() else (0, 0.0)
        for name, text, value in (
            ("missing", "Messages that numbers say were sent, and never came.", self.arrivals.missing),
            ("topics", "Topics whose numbers are known.", len(self.arrivals.topics)),
            ("unsaved", "Messages since the last checkpoint.", self.n_unsaved),
            ("connected", "1 with a broker, else 0.", self.client.is_connected()),
            ("checkpoint_age_seconds", "Time since the last checkpoint.", self.checkpoints.seconds_since_save),
            ("atoms", "Rows kept as basis.", basis[0]),
            ("unexplained_energy_ratio", "Share of the energy outside it.", basis[1]),
        ):
            yield GaugeMetricFamily(f"streamkpca_{name}", text, value)


def checked_options() -> argparse.Namespace:
    """Read the command line, or end with what is wrong."""
    parser = argparse.ArgumentParser(description="Watch an MQTT broker's messages, each counted once; raise alarms.")
    add = parser.add_argument
    add("--topic", required=True, help="what to watch; a filter like plant/+")
    add("--features", required=True, nargs="+", help="names of the numbers in a message")
    add("--checkpoint", type=Path, required=True, help="plant.npz makes plant-00000001.npz and so on")
    add("--every-seconds", type=float, default=5.0, help="between checkpoints at most (default %(default)s)")
    add("--quantile", type=float, default=0.999, help="share of rows without alarm; new monitors only (%(default)s)")
    add("--alarm-topic", default="alarms", help="where alarms go (default %(default)s)")
    add("--feedback-topic", default="feedback", help="what users say of events (default %(default)s)")
    add("--metrics-port", type=int, default=9464, help="for Prometheus, on 127.0.0.1 (default %(default)s)")
    add("--host", default="127.0.0.1", help="the broker's (default %(default)s)")
    add("--port", type=int, help="the broker's (default 1883, with TLS 8883)")
    add("--client-id", default="streamkpca", help="names the session that the broker keeps (default %(default)s)")
    add("--user", help="name for the broker; the password is the environment variable MQTT_PASSWORD")
    add("--tls", action="store_true", help="encrypt; so do the next two options")
    add("--ca-file", help="certificates to trust, PEM (default: the operating system's)")
    add("--cert-file", help="the service's own certificate and its key, PEM, not encrypted")
    options = parser.parse_args()
    try:
        Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5).subscribe(options.topic)
    except ValueError:
        parser.error(f"--topic {options.topic} is no filter; + stands for a whole level, and # for all from there on")
    for name, topic in (("alarm", options.alarm_topic), ("feedback", options.feedback_topic)):
        if re.search("[+#]", topic) or topic_matches_sub(options.topic, topic):
            parser.error(f"--{name}-topic {topic} must be one topic that --topic {options.topic} leaves out")
    try:
        is_encrypted = options.tls or options.ca_file or options.cert_file
        options.tls = ssl.create_default_context(cafile=options.ca_file) if is_encrypted else None
        if options.cert_file:
            # Without a password, OpenSSL would ask the terminal for that of an encrypted key, and wait.
            options.tls.load_cert_chain(options.cert_file, password="")
    except OSError as error:
        parser.error(f"--ca-file, --cert-file: {error}")
    options.port = options.port or (8883 if is_encrypted else 1883)
    return options


def main() -> None:
    """Run the service."""
    options = checked_options()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.captureWarnings(True)
    service = Service(options)
    for wanted in (signal.SIGTERM, signal.SIGINT):
        signal.signal(wanted, lambda *_: setattr(service, "stopping", True))
    try:
        server, _ = start_http_server(options.metrics_port, addr="127.0.0.1", registry=service.registry)
    except OSError as error:
        raise SystemExit(f"sensor_service: --metrics-port {options.metrics_port}: {error}") from None
    log.info("metrics: http://127.0.0.1:%d/metrics", server.server_port)
    service.run()


if __name__ == "__main__":
    main()
