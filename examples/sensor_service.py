"""A service that must not stop
============================

This service learns sensor messages from an MQTT broker, publishes alarms and serves metrics.

Every message is counted exactly once, whenever the process is killed. That takes the following:

* The broker keeps messages until they are acknowledged: quality of service 1, and a session that outlives the
  connection.
* A message is acknowledged only when a checkpoint that holds it is on the disk. So no message is lost, but some come
  again.
* Publishers number the messages of each topic 1, 2, 3, ... (or from 0) in a user property (MQTT 5). The number is not
  in the payload, so that malformed messages, too, count once.
* The checkpoint holds the numbers that arrived, and fingerprints of the latest 65,536 messages (topic, number and
  payload). So repeated messages are recognised, in any order. The broker repeats no earlier ones: it waits while
  ``--every-messages`` are unacknowledged, and these are at most 65,535.
* Alarms that the broker has not confirmed are part of the checkpoint and are published again: they arrive at least
  once.
* All this happens in one thread, so model, numbers and acknowledgements are never out of step. Only metrics are read in
  another, which the model allows.

If a checkpoint cannot be saved, for example on a full disk, the service acknowledges nothing, reports it, and tries
again every second; the broker keeps what comes meanwhile. Without a broker it tries to connect every second.

The service compares a message's number with those of the same topic:

* Repeated: the same number and payload are among the latest messages. The message is counted as such and not learned.
* Restart: the number has come before, but with another payload, or so long ago that its payload is forgotten. Or it is
  0 or 1 again, and more than 1,000 numbers have followed it (``--every-messages`` if that is more). Or it is that far
  below all others. The message is learned, and a new series of numbers begins with it.
* Jump: the number is more than a million above the highest. The message is learned. The numbers in between are learned
  if they come, and are not reported as missing while they are a million or more.
* All others are learned, late ones too. Numbers in between that have not come are reported as missing.

This rule has limits:

* A publisher that repeats a message after 65,536 others, of any topics, is taken for restarted. So is a second
  publisher on the same topic.
* Messages of a restarted publisher are taken for repeated as long as their numbers and payloads equal earlier ones,
  unless it begins at 0 or 1 after more than 1,000 messages. If the process is killed at that moment, too, messages
  equal to those of the last series are taken for repeated.
* Messages that publishers send with quality of service 0 count once at most; a kill loses those since the last
  checkpoint.
* A broker that loses its memory, or reads an old state of it after a crash, loses or repeats messages. Repeated ones
  are recognised if they are among the latest 65,536.
* The state is bounded, whatever publishers do. Beyond 10,000 topics, the one that has been silent for longest is
  forgotten. Beyond 10,000 gaps in numbers, a quarter is forgotten: the lowest gaps of the topics with most of them.
  Beyond 300,000 characters of alarms that the broker has not confirmed, further ones are not published.
  streamkpca_given_up_total counts each of these.

Run one process at a time: the client identifier, by which the broker knows the session, and the checkpoints are its
own. A second process with the same checkpoints refuses to start. Two with the same identifier take the session from
each other again and again; no message is lost, but some are counted by both.

A payload is a JSON list of numbers of comparable scale; null, NaN and infinity make rows that the model skips and
counts. Any other payload is counted as malformed and acknowledged. The number must be one of decimal digits, below
2^63. A message without such a number is counted, too, and twice if a kill falls between its checkpoint and its
acknowledgement. The broker drops messages of more than 16,384 bytes and 64 for each feature. Retained messages count
when they are published, and do not come again when the service connects.

An alarm names the three features that add most to the novelty, by their positions in the message, counted from 0.

Step by step, on one machine with Debian's packages ``mosquitto`` and ``mosquitto-clients``. Debian starts a broker of
its own; ``sudo systemctl disable --now mosquitto`` ends it.

1. In a checkout, with a virtual environment: ``pip install '.[service]'``, because it needs the extra ``service``
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

       python examples/sensor_service.py --topic "plant/+" --n-features 3 --checkpoint model.npz

5. Publish: ``mosquitto_pub -V 5 -q 1 -t plant/pump -D publish user-property number 1 -m "[0.1, 0.2, 0.3]"``
   (the first message after the installation takes some seconds, as the library compiles its loops)
6. Watch: ``curl http://127.0.0.1:9464/metrics`` and ``mosquitto_sub -t alarms``

A remote broker needs TLS and a password. The password is the first line of a file, or the environment variable
``MQTT_PASSWORD``; it is no option, because other users of the machine can read command lines. ``--ca-file`` names the
certificate of the authority that signed the broker's; without it, ``--tls`` trusts those of the operating system. If
the broker wants a certificate of the service, pass ``--cert-file`` and ``--key-file``. With TLS the port is 8883. Pass
these besides the options above::

    --host broker.example --ca-file ca.crt --user plant --password-file password.txt
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
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca import Checkpointer, CheckpointError, StreamingKernelPCA
from streamkpca.kernels import kernel_from

try:
    import fcntl
except ImportError:  # Windows has no such locks.
    fcntl = None

try:
    import paho.mqtt.properties
    from paho.mqtt.client import Client, MQTTMessage, MQTTv5, topic_matches_sub
    from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import MalformedPacket, Properties
    from paho.mqtt.subscribeoptions import SubscribeOptions
    from prometheus_client import CollectorRegistry, Histogram, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
except ModuleNotFoundError as error:
    raise SystemExit(f'sensor_service.py needs {error.name}; pip install "streamkpca[service]"') from None

Array = npt.NDArray[np.float64]
Gap = tuple[int, int]
FOR_EVER = 0xFFFFFFFF
ROWS_BETWEEN_THRESHOLDS = 1000
FEATURES_IN_ALARM = 3
RETRY_SECONDS, NOTICE_SECONDS = 1.0, 10.0
# After so many connections that ended so soon, another process seems to want the session, too.
SHORT_CONNECTIONS, SHORT_SECONDS = 3, 10.0
# The checkpoint's header holds 4 MiB and 262,144 values. With these bounds the state takes at most about half of the
# bytes and a quarter of the values.
MOST_LATEST = 65_536
MOST_TOPICS = 10_000
MOST_GAPS = 10_000
MOST_ALARM_CHARACTERS = 300_000
# More messages than publishers leave unconfirmed, and repeat after a pause.
MOST_UNCONFIRMED = 1000
LEAP = 1_000_000
# A packet full of properties takes paho about as long as learning that many bytes of rows; a larger one, longer.
PACKET_BYTES, PACKET_BYTES_A_FEATURE = 16_384, 64
log = logging.getLogger("sensor_service")


def read_text(buffer: bytes, most: int) -> tuple[str, int]:
    """Read a string of a packet, and tell its length there."""
    length = int.from_bytes(buffer[:2], "big")
    if not 2 <= 2 + length <= min(most, len(buffer)):
        raise MalformedPacket("a string is longer than its packet")
    return bytes(buffer[2 : 2 + length]).decode("utf-8", "replace"), 2 + length


# The broker forwards strings with U+FEFF, as MQTT 5 demands (1.5.4-3). paho's own function ends the connection over
# one; the broker would then send the message again, for ever.
paho.mqtt.properties.readUTF = read_text


def fingerprint(data: bytes) -> int:
    """Return 64 bits that other data has by chance once in 10^19 cases."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def n_missing(gaps: Iterable[Gap]) -> int:
    """Count the numbers in gaps, except those that a jump left."""
    return sum(high - low + 1 for low, high in gaps if high - low + 1 < LEAP)


class Verdict(Enum):
    """What a number says about a message."""

    NEW = "new"
    JUMP = "jump"
    RESTART = "restart"
    REPEATED = "repeated"


class Numbers:
    """The numbers of one count that have arrived: all from the first to the highest, except those in the gaps."""

    def __init__(self, first: int, highest: int | None = None, gaps: Iterable[Gap] = ()) -> None:
        self.first = first
        self.highest = first if highest is None else highest
        self.gaps = list(gaps)
        self.missing = n_missing(self.gaps)

    def __contains__(self, number: int) -> bool:
        i = self._gaps_up_to(number)
        return self.first <= number <= self.highest and not (i and number <= self.gaps[i - 1][1])

    def add(self, number: int) -> None:
        """Add a number that has not arrived before."""
        i = self._gaps_up_to(number)
        if number > self.highest:
            self._replace(i, i, [(self.highest + 1, number - 1)])
            self.highest = number
        elif number < self.first:
            self._replace(0, 0, [(number + 1, self.first - 1)])
            self.first = number
        else:
            low, high = self.gaps[i - 1]
            self._replace(i - 1, i, [(low, number - 1), (number + 1, high)])

    def give_up(self, n: int) -> None:
        """Take the numbers in the lowest gaps for arrived."""
        self._replace(0, n, [])

    def end_of_series(self, number: int) -> int:
        """Return the number before the next gap."""
        i = self._gaps_up_to(number)
        return self.gaps[i][0] - 1 if i < len(self.gaps) else self.highest

    def _gaps_up_to(self, number: int) -> int:
        """Count the gaps that begin at a number or below."""
        return bisect_right(self.gaps, number, key=lambda gap: gap[0])

    def _replace(self, start: int, stop: int, pieces: Iterable[Gap]) -> None:
        new = [(low, high) for low, high in pieces if low <= high]
        self.missing += n_missing(new) - n_missing(self.gaps[start:stop])
        self.gaps[start:stop] = new


def judge(numbers: Numbers, number: int, window: int, *, is_known: bool, is_redelivered: bool) -> Verdict:
    """Judge a message by its number; `is_known` if number and payload are among the latest."""
    if is_known and is_redelivered:
        return Verdict.REPEATED
    if number in numbers:
        # Publishers repeat what was not confirmed; that cannot be the first of so many.
        begins_again = number <= 1 and numbers.end_of_series(number) - number > window
        return Verdict.REPEATED if is_known and not begins_again else Verdict.RESTART
    if numbers.first - number > window:
        return Verdict.RESTART
    # A known message, too: a restarted publisher's row that equals the one of this number before.
    return Verdict.JUMP if number - numbers.highest > LEAP else Verdict.NEW


class Arrivals:
    """What has arrived: fingerprints of the latest messages, and the numbers of each topic, within fixed bounds.

    `window` is how many messages brokers and publishers leave unconfirmed, and repeat after a pause.
    """

    def __init__(
        self,
        window: int,
        latest: str = "",
        topics: Iterable[list[int]] = (),
        given_up: dict[str, int] | None = None,
    ) -> None:
        self.window = window
        marks = np.frombuffer(base64.b64decode(latest, validate=True), dtype="<u8").tolist()
        self.latest: OrderedDict[int, None] = OrderedDict.fromkeys(marks)
        # By fingerprints, as names may be long; the topic that was silent for longest comes first.
        self.topics: OrderedDict[int, Numbers] = OrderedDict()
        for topic, first, highest, *ends in topics:
            if [first, *ends, highest] != sorted([first, *ends, highest]):
                raise ValueError(f"numbers {first}, {ends}, {highest} are not in order")
            self.topics[topic] = Numbers(first, highest, zip(ends[::2], ends[1::2], strict=True))
        self.n_gaps = sum(len(numbers.gaps) for numbers in self.topics.values())
        self.missing = sum(numbers.missing for numbers in self.topics.values())
        self.given_up = Counter[str](given_up or {})

    def note(self, topic: str, number: int, payload: bytes, *, is_redelivered: bool = False) -> Verdict:
        """Record a message and judge it."""
        key = fingerprint(topic.encode())
        mark = fingerprint(b"%d %d %s" % (key, number, payload))
        is_known, numbers = mark in self.latest, self.topics.pop(key, None)
        if numbers is None:
            verdict = Verdict.REPEATED if is_known else Verdict.NEW
        else:
            verdict = judge(numbers, number, self.window, is_known=is_known, is_redelivered=is_redelivered)
            self._count(numbers, -1)
            if verdict is Verdict.RESTART:
                numbers = None
            elif verdict is not Verdict.REPEATED:
                numbers.add(number)
        numbers = numbers or Numbers(number)
        self._count(numbers, 1)
        self.topics[key] = numbers
        self.latest[mark] = None
        self.latest.move_to_end(mark)
        self._keep_bounds()
        return verdict

    def record(self) -> dict[str, Any]:
        """Return the arguments, besides the window, that make an equal object, for JSON."""
        marks = np.fromiter(self.latest, dtype="<u8", count=len(self.latest))
        topics = [
            [topic, numbers.first, numbers.highest, *(end for gap in numbers.gaps for end in gap)]
            for topic, numbers in self.topics.items()
        ]
        return {
            "latest": base64.b64encode(marks.tobytes()).decode(),
            "topics": topics,
            "given_up": self.given_up,
        }

    def _count(self, numbers: Numbers, sign: int) -> None:
        self.n_gaps += sign * len(numbers.gaps)
        self.missing += sign * numbers.missing

    def _keep_bounds(self) -> None:
        if len(self.latest) > MOST_LATEST:
            self.latest.popitem(last=False)
        if len(self.topics) > MOST_TOPICS:
            _, forgotten = self.topics.popitem(last=False)
            self._count(forgotten, -1)
            self.given_up["topics"] += 1
        if self.n_gaps > MOST_GAPS:
            self._give_up_gaps(MOST_GAPS // 4 + 1)

    def _give_up_gaps(self, n: int) -> None:
        """Give up gaps: up to half of those of each topic, beginning with the topics that have most."""
        # Many at a time: sorting thousands of topics for each message would take longer than learning it.
        self.given_up["gaps"] += n
        for numbers in sorted(self.topics.values(), key=lambda numbers: -len(numbers.gaps)):
            n_here = min(n, (len(numbers.gaps) + 1) // 2)
            self._count(numbers, -1)
            numbers.give_up(n_here)
            self._count(numbers, 1)
            n -= n_here
            if n == 0:
                return


def number_of(message: MQTTMessage) -> int | None:
    """Read the number that the publisher gave a message; None if there is none, or not just one."""
    values = [value for name, value in getattr(message.properties, "UserProperty", []) if name == "number"]
    if len(values) == 1 and re.fullmatch("[0-9]{1,19}", values[0]) and int(values[0]) < 2**63:
        return int(values[0])
    return None


def row_of(payload: bytes, n_features: int) -> Array:
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


class Notices:
    """Log lines that come at most once in ten seconds of each kind, and say how many were left out."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}
        self._left_out = Counter[str]()

    def say(self, text: str, *values: Any) -> None:
        """Log a warning; its kind is the text without values."""
        if time.monotonic() < self._next.get(text, 0.0):
            self._left_out[text] += 1
            return
        left_out = self._left_out.pop(text, 0)
        log.warning(text + (f" ({left_out} more of this kind before)" if left_out else ""), *values)
        self._next[text] = time.monotonic() + NOTICE_SECONDS


class Service:
    """A model that learns from a broker's messages, with the state that it needs to resume after a kill."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.stopping = False
        try:
            self.checkpoints = Checkpointer(options.checkpoint)
            self.model = self.checkpoints.latest() or StreamingKernelPCA(
                kernel=options.kernel, max_atoms=options.atoms, on_bad_rows="skip"
            )
        except (CheckpointError, OSError) as error:
            raise SystemExit(f"sensor_service: {error}") from None
        if self.n_rows and self.model.n_features_in_ != options.n_features:
            raise SystemExit(
                f"sensor_service: the checkpoint's model has {self.model.n_features_in_} features, not "
                f"{options.n_features}; pass --n-features {self.model.n_features_in_} or another --checkpoint"
            )
        self.notices = Notices()
        alarms = self._restore(self.model.extra_)
        self.n_unsaved = 0
        self.next_save = self.next_connection = 0.0
        self.connected_at: float | None = None
        self.n_short = 0
        # Packet identifiers: of messages in this connection, and of alarms that are not confirmed yet.
        self.unacknowledged: list[int] = []
        self.unconfirmed: dict[int, str] = {}
        self.unconfirmed_characters = 0
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self.latency = Histogram(
            "streamkpca_message_seconds",
            "Time from a message's arrival until it is scored and learned.",
            buckets=(0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
            registry=self.registry,
        )
        self.client = self._client()
        for alarm in alarms:
            self._publish(alarm)

    @property
    def n_rows(self) -> int:
        """Rows given to the model, including those that it skipped."""
        return self.model.n_samples_seen_ if self.model.__sklearn_is_fitted__() else 0

    def run(self) -> None:
        """Work until `stopping` is set; then save, acknowledge and return."""
        while not self.stopping:
            self._turn()
        # Wait a moment for alarms to be confirmed. Unconfirmed ones are in the checkpoint.
        patience = time.monotonic() + 2.0
        while self.unconfirmed and time.monotonic() < patience:
            self._turn()
        is_saved = self._save()
        self.client.disconnect()
        if not is_saved:
            raise SystemExit(
                f"sensor_service: the last {self.n_unsaved} messages could not be saved; they are not acknowledged, so "
                "the broker sends them to the next process"
            )
        log.info("stopped after %d rows", self.n_rows)

    def _restore(self, extra: Any) -> list[str]:
        """Take over the state of a checkpoint; return its unconfirmed alarms."""
        window = max(MOST_UNCONFIRMED, self.options.every_messages)
        past = extra or {"arrivals": {}, "counts": {}, "threshold": None, "alarms": ""}
        try:
            self.arrivals = Arrivals(window, **past["arrivals"])
            self.counts = Counter[str](past["counts"])
            self.threshold: float | None = past["threshold"]
            return json.loads(base64.b64decode(past["alarms"], validate=True) or b"[]")
        except (LookupError, TypeError, ValueError):
            raise SystemExit(
                f"sensor_service: the newest checkpoint of {self.options.checkpoint} is not from this service; pass "
                "another --checkpoint"
            ) from None

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
            client.username_pw_set(options.user, options.password)
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = FOR_EVER
        properties.MaximumPacketSize = PACKET_BYTES + PACKET_BYTES_A_FEATURE * options.n_features
        # The broker sends this many messages before it waits for acknowledgements, that is for a checkpoint. If the
        # checkpoint were due later, both would wait for each other. A broker with a lower limit of its own
        # (max_inflight_messages) waits earlier; then --every-seconds makes slow progress.
        properties.ReceiveMaximum = options.every_messages
        client.connect_async(options.host, options.port, clean_start=False, properties=properties)
        return client

    def _turn(self) -> None:
        """Take the messages that arrive within a moment, and save if that is due."""
        if self.client.loop(0.1) != MQTTErrorCode.MQTT_ERR_SUCCESS:
            self._connect()
        # Messages count, not rows: malformed ones, too, wait for their acknowledgement.
        is_late = self.checkpoints.seconds_since_save >= self.options.every_seconds
        is_due = self.n_unsaved >= self.options.every_messages or (self.n_unsaved and is_late)
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
            self.notices.say("no broker at %s:%d: %s", self.options.host, self.options.port, error)

    def _save(self) -> bool:
        """Write a checkpoint, then acknowledge what it holds; tell whether it could be written."""
        extra = {
            "arrivals": self.arrivals.record(),
            "counts": self.counts,
            "threshold": self.threshold,
            # As one text without commas: the header's bound on values counts them.
            "alarms": base64.b64encode(json.dumps(list(self.unconfirmed.values())).encode()).decode(),
        }
        try:
            self.checkpoints.save(self.model, extra)
        # Whatever it is, a process that ends would meet it again.
        except Exception as error:
            self.counts["failed saves"] += 1
            self.next_save = time.monotonic() + RETRY_SECONDS
            self.notices.say("cannot save, and acknowledge nothing until that works: %s", error)
            return False
        self.n_unsaved = 0
        for packet in self.unacknowledged:
            self.client.ack(packet, 1)
        self.unacknowledged.clear()
        return True

    def _take(self, message: MQTTMessage) -> None:
        """Count a message, and learn it unless it is repeated."""
        topic, number = message.topic, number_of(message)
        if number is None:
            self.counts["bad number"] += 1
            self.notices.say("%.100r: expected one user property 'number' from 0 to 2^63 - 1", topic)
            return
        n_given_up = self.arrivals.given_up.total()
        verdict = self.arrivals.note(topic, number, message.payload, is_redelivered=message.dup)
        self.counts[verdict.value] += 1
        if self.arrivals.given_up.total() > n_given_up:
            self.notices.say("%.100r: too many topics or gaps in numbers; the oldest are forgotten", topic)
        if verdict is Verdict.RESTART:
            self.notices.say("%.100r: its publisher has begun again, with number %d", topic, number)
        if verdict is Verdict.JUMP:
            self.notices.say("%.100r: its numbers jump to %d", topic, number)
        if verdict is not Verdict.REPEATED:
            self._learn(topic, number, message.payload)

    def _learn(self, topic: str, number: int, payload: bytes) -> None:
        """Score a row, learn it, and raise an alarm if it is novel."""
        try:
            row, novelty, features = row_of(payload, self.options.n_features), 0.0, []
            if self.threshold is not None and np.isfinite(row).all():
                novelty = float(self.model.novelty([row])[0])
                if novelty > self.threshold:
                    # Explained before the model learns it, and later finds it less novel.
                    features = np.argsort(-self.model.contributions([row])[0])[:FEATURES_IN_ALARM].tolist()
            self.model.partial_fit([row])
        except ValueError as error:
            self.counts["malformed"] += 1
            log.debug("%.100r, number %d: %s", topic, number, error)
            return
        if self.threshold is not None and novelty > self.threshold:
            self.counts["alarms"] += 1
            alarm = {
                "topic": topic,
                "number": number,
                "novelty": novelty,
                "threshold": self.threshold,
                "features": features,
            }
            self._publish(json.dumps(alarm))
        n_learned = self.n_rows - self.model.n_rows_rejected_
        if self.n_rows % ROWS_BETWEEN_THRESHOLDS == 0 and n_learned >= self.options.alarms_after:
            threshold = self.model.novelty_threshold(self.options.quantile)
            # A checkpoint cannot hold any other.
            self.threshold = threshold if np.isfinite(threshold) else self.threshold

    def _publish(self, alarm: str) -> None:
        if self.unconfirmed_characters + len(alarm) > MOST_ALARM_CHARACTERS:
            self.counts["alarms given up"] += 1
            self.notices.say("the broker confirms no alarms; one that is not published: %.200s", alarm)
            return
        # It is queued if there is no connection.
        self.unconfirmed[self.client.publish(self.options.alarm_topic, alarm, qos=1).mid] = alarm
        self.unconfirmed_characters += len(alarm)

    def _on_publish(self, client: Client, userdata: Any, packet: int, reason: Any, properties: Any) -> None:
        self.unconfirmed_characters -= len(self.unconfirmed.pop(packet, ""))
        if reason.is_failure:
            self.notices.say("the broker refuses an alarm: %s", reason)

    def _on_connect(self, client: Client, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self.notices.say("the broker refuses the connection: %s", reason)
            return
        self.connected_at = time.monotonic()
        log.info("connected: %s, session %s", reason, "resumed" if flags.session_present else "new")
        # Retained messages would come at every connection, as new ones.
        wanted = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
        client.subscribe(self.options.topic, options=wanted)

    def _on_disconnect(self, client: Client, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        log.info("disconnected: %s", reason)
        if self.connected_at is None or self.stopping:
            return
        self.counts["connections lost"] += 1
        is_short = time.monotonic() - self.connected_at < SHORT_SECONDS
        self.connected_at, self.n_short = None, self.n_short + 1 if is_short else 0
        if self.n_short >= SHORT_CONNECTIONS:
            self.next_connection = time.monotonic() + SHORT_SECONDS
            self.notices.say(
                "connections end soon; is there another process with --client-id %s?", self.options.client_id
            )

    def _on_subscribe(self, client: Client, userdata: Any, packet: int, reasons: Any, properties: Any) -> None:
        if reasons[0].is_failure:
            raise SystemExit(f"sensor_service: the broker refuses --topic {self.options.topic}: {reasons[0]}")
        log.info("subscribed to %s", self.options.topic)

    def _on_message(self, client: Client, userdata: Any, message: MQTTMessage) -> None:
        try:
            with self.latency.time():
                self._take(message)
        # Whatever it is, the broker would send the message again to the next process.
        except Exception:
            self.counts["failed"] += 1
            self.notices.say("a message is left out\n%s", traceback.format_exc())
        self.n_unsaved += 1
        if message.qos:
            self.unacknowledged.append(message.mid)

    def collect(self) -> Iterator[Metric]:
        """Read the metrics for a scrape, in another thread; counters continue after a restart."""
        n_rows, counts, given_up = self.n_rows, self.counts, self.arrivals.given_up
        yield CounterMetricFamily("streamkpca_rows", "Rows, those that were not finite too.", n_rows)
        rejected = CounterMetricFamily("streamkpca_rejected", "Messages that taught nothing.", labels=["reason"])
        rejected.add_metric(["not finite"], self.model.n_rows_rejected_ if n_rows else 0)
        for reason in ("malformed", "bad number", "failed"):
            rejected.add_metric([reason], counts[reason])
        yield rejected
        yield CounterMetricFamily("streamkpca_repeated", "Messages that came again.", counts["repeated"])
        yield CounterMetricFamily("streamkpca_restarts", "Times that a topic's numbers began again.", counts["restart"])
        yield CounterMetricFamily("streamkpca_jumps", "Times that a topic's numbers leapt a million.", counts["jump"])
        yield CounterMetricFamily("streamkpca_alarms", "Rows above the threshold of their time.", counts["alarms"])
        forgotten = CounterMetricFamily("streamkpca_given_up", "What did not fit in the state.", labels=["what"])
        forgotten.add_metric(["topics"], given_up["topics"])
        forgotten.add_metric(["gaps"], given_up["gaps"])
        forgotten.add_metric(["alarms"], counts["alarms given up"])
        yield forgotten
        yield CounterMetricFamily("streamkpca_failed_saves", "Checkpoints not written.", counts["failed saves"])
        lost = counts["connections lost"]
        yield CounterMetricFamily("streamkpca_connections_lost", "Times that the broker's connection ended.", lost)
        missing = self.arrivals.missing
        yield GaugeMetricFamily("streamkpca_missing", "Messages that numbers say were sent, and never came.", missing)
        yield GaugeMetricFamily("streamkpca_topics", "Topics whose numbers are known.", len(self.arrivals.topics))
        yield GaugeMetricFamily("streamkpca_unsaved", "Messages since the last checkpoint.", self.n_unsaved)
        yield GaugeMetricFamily("streamkpca_connected", "1 with a broker, else 0.", self.client.is_connected())
        age = self.checkpoints.seconds_since_save
        yield GaugeMetricFamily("streamkpca_checkpoint_age_seconds", "Time since the last checkpoint.", age)
        yield GaugeMetricFamily("streamkpca_atoms", "Rows kept as basis.", self.model.n_atoms_ if n_rows else 0)
        share = self.model.unexplained_energy_ratio_ if n_rows else 0.0
        yield GaugeMetricFamily("streamkpca_unexplained_energy_ratio", "Share of the energy outside it.", share)


@contextmanager
def locked(checkpoint: Path) -> Iterator[None]:
    """Keep other processes from the checkpoints."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(checkpoint.with_name(f"{checkpoint.name}.lock").open("a"))
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(
                f"sensor_service: another process uses {checkpoint}; end it, or pass another --checkpoint and another "
                "--client-id"
            ) from None
        except OSError as error:
            # A full disk, for example, must not keep the service from its work.
            log.warning("no lock keeps other processes from %s: %s", checkpoint, error)
        yield


def tls_of(options: argparse.Namespace) -> ssl.SSLContext | None:
    """Return how to encrypt; None for not at all."""
    if not (options.tls or options.tls_insecure or options.ca_file or options.cert_file):
        return None
    wrong = "--ca-file"
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
        if options.tls_insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        wrong = "--cert-file, --key-file"
        if options.cert_file:
            # Without this, OpenSSL would ask the terminal for the password of an encrypted key, and wait.
            context.load_cert_chain(options.cert_file, options.key_file, password="")
    except OSError as error:
        raise ValueError(f"{wrong}: {error}") from None
    return context


def password_of(options: argparse.Namespace) -> str | None:
    """Read the password from a file or the environment."""
    if options.password_file is None:
        return os.environ.get("MQTT_PASSWORD")
    lines = options.password_file.read_text(encoding="utf-8").splitlines()
    if not (lines and lines[0]):
        raise ValueError(f"{options.password_file}: expected a password in the first line")
    return lines[0]


def checked_options() -> argparse.Namespace:
    """Read the command line, or end with what is wrong."""
    parser = argparse.ArgumentParser(
        description="Learn from an MQTT broker's messages; raise alarms; count all once.", allow_abbrev=False
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="the broker's (default %(default)s)")
    add("--port", type=int, help="the broker's (default 1883, with TLS 8883)")
    add("--client-id", default="streamkpca", help="names the session that the broker keeps (default %(default)s)")
    add("--topic", required=True, help="what to learn from; a filter like plant/+")
    add("--alarm-topic", default="alarms", help="where alarms go (default %(default)s)")
    add("--n-features", type=int, required=True, help="numbers in a message")
    add("--checkpoint", type=Path, required=True, help="model.npz makes model-00000001.npz and so on")
    add("--every-messages", type=int, default=1000, help="between checkpoints at most (default %(default)s)")
    add("--every-seconds", type=float, default=5.0, help="between checkpoints at most (default %(default)s)")
    add("--metrics-port", type=int, default=9464, help="for Prometheus, on 127.0.0.1 (default %(default)s)")
    add("--kernel", default="rbf", help="a name or JSON; new models only (default %(default)s)")
    add("--atoms", type=int, default=256, help="budget of atoms; new models only (default %(default)s)")
    add("--alarms-after", type=int, default=5000, help="rows before the first alarm (default %(default)s)")
    add("--quantile", type=float, default=0.999, help="share of rows below the threshold (default %(default)s)")
    add("--tls", action="store_true", help="encrypt; so do the other options for certificates")
    add("--ca-file", help="certificates to trust, PEM (default: the operating system's)")
    add("--cert-file", help="the service's own certificate, PEM")
    add("--key-file", help="its key, PEM, not encrypted (default: in the same file)")
    add("--tls-insecure", action="store_true", help="encrypt, but trust any broker; for tests only")
    add("--user", help="name for the broker")
    add("--password-file", type=Path, help="file with the password (default: environment variable MQTT_PASSWORD)")
    options = parser.parse_args()
    if not 1 <= options.every_messages <= 65535:
        parser.error("--every-messages must be from 1 to 65535, the most that MQTT leaves unacknowledged")
    if not options.every_seconds > 0.0:
        parser.error("--every-seconds must be above 0")
    if not 1 <= options.n_features <= 1_000_000:
        parser.error("--n-features must be from 1 to 1000000")
    if not 0.0 < options.quantile < 1.0:
        parser.error("--quantile must be between 0 and 1")
    try:
        Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5).subscribe(options.topic)
    except ValueError:
        parser.error(f"--topic {options.topic} is no filter; + stands for a whole level, and # for all from there on")
    if not options.alarm_topic or re.search("[+#]", options.alarm_topic):
        parser.error("--alarm-topic must be one topic, without + and #")
    if topic_matches_sub(options.topic, options.alarm_topic):
        parser.error(f"--topic {options.topic} takes in --alarm-topic {options.alarm_topic}; choose another")
    if options.atoms < 1:
        parser.error("--atoms must be at least 1")
    if options.password_file and options.user is None:
        parser.error("--password-file needs --user")
    if options.key_file and not options.cert_file:
        parser.error("--key-file needs --cert-file")
    try:
        options.kernel = kernel_from(options.kernel, where="--kernel")
        options.tls = tls_of(options)
        options.password = password_of(options)
    except (OSError, TypeError, ValueError) as error:
        parser.error(str(error))
    if options.port is None:
        options.port = 1883 if options.tls is None else 8883
    return options


def main() -> None:
    """Run the service."""
    options = checked_options()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.captureWarnings(True)
    with locked(options.checkpoint):
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
