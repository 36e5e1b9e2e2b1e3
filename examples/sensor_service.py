"""A service that must not stop: it learns sensor messages from an MQTT broker, publishes alarms and serves metrics.

Every message is counted exactly once, whenever the process is killed. That takes the following:

* The broker keeps messages until they are acknowledged: quality of service 1, and a session that outlives the
  connection.
* A message is acknowledged only when a checkpoint that holds it is on the disk. So no message is lost, but some come
  again.
* Publishers number the messages of each topic 1, 2, 3, ... The numbers that arrived are part of the checkpoint, so
  repeated messages are recognised, in any order. The number is a user property (MQTT 5) and not in the payload, so that
  malformed messages, too, count once.
* Alarms that the broker has not confirmed are part of the checkpoint and are published again: they arrive at least
  once.
* All this happens in one thread, so model, numbers and acknowledgements are never out of step. Only metrics are read in
  another, which the model allows.
* An error that the service cannot handle, such as a full disk, ends the process. A supervisor (systemd, a container's
  restart policy) starts it again, and nothing is lost.

Run one process at a time: the client identifier, by which the broker knows the session, and the checkpoints are its
own.

A payload is a JSON list of numbers of comparable scale; null, NaN and infinity make rows that the model skips and
counts. Any other payload is counted as malformed and acknowledged; if it has no number, it is counted twice if a kill
falls between its checkpoint and its acknowledgement.

An alarm names the three features that add most to the novelty, by their positions in the message, counted from 0.

Step by step, on one machine (Debian's packages ``mosquitto`` and ``mosquitto-clients``):

1. In a checkout: ``pip install '.[service]'``, because it needs the extra ``service``
2. Write ``mosquitto.conf``. By default Mosquitto forgets everything when it ends, drops all but 1,000 waiting
   messages, and allows only 20 unacknowledged ones::

       listener 1883 127.0.0.1
       allow_anonymous true
       persistence true
       persistence_location ./
       max_queued_messages 0
       max_inflight_messages 1000

3. Start the broker: ``mosquitto -c mosquitto.conf``
4. In another shell, start the service; stop it with Ctrl-C, SIGTERM or, if you like, SIGKILL::

       python examples/sensor_service.py --topic "plant/+" --n-features 3 --checkpoint model.npz

5. Publish: ``mosquitto_pub -V 5 -q 1 -t plant/pump -D publish user-property number 1 -m "[0.1, 0.2, 0.3]"``
6. Watch: ``curl http://127.0.0.1:9464/metrics`` and ``mosquitto_sub -t alarms``

A remote broker needs TLS and a password: ``client.tls_set()``, ``client.username_pw_set(...)``.
"""

import argparse
import json
import logging
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca import Checkpointer, StreamingKernelPCA
from streamkpca.kernels.registry import parse_kernel

try:
    from paho.mqtt.client import Client, MQTTMessage, MQTTv5, topic_matches_sub
    from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties
    from prometheus_client import CollectorRegistry, Histogram, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
except ModuleNotFoundError as error:
    raise SystemExit(f'sensor_service.py needs {error.name}; pip install "streamkpca[service]"') from None

Array = npt.NDArray[np.float64]
FOR_EVER = 0xFFFFFFFF
MOST_MISSING = 1000
ROWS_BETWEEN_THRESHOLDS = 1000
FEATURES_IN_ALARM = 3
log = logging.getLogger("sensor_service")


class Arrivals:
    """The numbers of a topic that have arrived: all up to the highest, except the missing ones."""

    def __init__(self, highest: int = 0, missing: Iterable[int] = ()) -> None:
        self.highest = highest
        self.missing = set(missing)

    def note(self, number: int) -> bool:
        """Record a number and tell whether it is new."""
        if number > self.highest:
            # Messages that the broker dropped stay missing for ever; only the latest are worth waiting for.
            skipped = range(max(self.highest + 1, number - MOST_MISSING), number)
            if skipped:
                self.missing = set(sorted(self.missing.union(skipped))[-MOST_MISSING:])
            self.highest = number
            return True
        is_late = number in self.missing
        self.missing.discard(number)
        return is_late

    def record(self) -> tuple[int, list[int]]:
        """Return the arguments that make an equal object, for JSON."""
        return self.highest, sorted(self.missing)


def number_of(message: MQTTMessage) -> int | None:
    """Read the number that the publisher gave a message; None if there is none."""
    for name, value in getattr(message.properties, "UserProperty", []):
        if name == "number" and value.isdecimal() and len(value) < 20:
            return int(value)
    return None


def row_of(payload: bytes, n_features: int) -> Array:
    """Read the row in a message, or raise ValueError."""
    try:
        values = json.loads(payload)
        if isinstance(values, list) and all(isinstance(value, int | float | None) for value in values):
            row = np.array(values, dtype=np.float64)
            if row.shape == (n_features,):
                return row
    except (OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None
    raise ValueError(f"expected a JSON list of {n_features} numbers")


class Service:
    """A model that learns from a broker's messages, with the state that it needs to resume after a kill."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.stopping = False
        self.checkpoints = Checkpointer(options.checkpoint)
        self.model = self.checkpoints.latest() or StreamingKernelPCA(
            kernel=parse_kernel(options.kernel), max_atoms=options.atoms, on_bad_rows="skip"
        )
        if self.n_rows and self.model.n_features_in_ != options.n_features:
            raise SystemExit(
                f"sensor_service: the checkpoint's model has {self.model.n_features_in_} features, not "
                f"{options.n_features}; pass --n-features {self.model.n_features_in_} or another --checkpoint"
            )
        past: dict[str, Any] = self.model.extra_ or {"arrivals": {}, "counts": {}, "threshold": None, "alarms": []}
        self.arrivals = {topic: Arrivals(*record) for topic, record in past["arrivals"].items()}
        self.counts = {"malformed": 0, "repeated": 0, "alarms": 0} | past["counts"]
        self.threshold: float | None = past["threshold"]
        self.n_unsaved = 0
        # Packet identifiers: of messages in this connection, and of alarms that are not confirmed yet.
        self.unacknowledged: list[int] = []
        self.unconfirmed: dict[int, str] = {}
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self.latency = Histogram(
            "streamkpca_message_seconds",
            "Time from a message's arrival until it is scored and learned.",
            buckets=(0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
            registry=self.registry,
        )
        self.client = Client(CallbackAPIVersion.VERSION2, client_id=options.client_id, protocol=MQTTv5, manual_ack=True)
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = self._on_subscribe
        self.client.on_message = self._on_message
        self.client.on_publish = lambda client, userdata, packet, *_: self.unconfirmed.pop(packet, None)
        self.client.on_disconnect = lambda client, userdata, flags, reason, *_: log.info("disconnected: %s", reason)
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = FOR_EVER
        # The broker sends this many messages before it waits for acknowledgements, that is for a checkpoint. If the
        # checkpoint were due later, both would wait for each other. A broker with a lower limit of its own
        # (max_inflight_messages) waits earlier; then --every-seconds makes slow progress.
        properties.ReceiveMaximum = options.every_messages
        self.client.connect_async(options.host, options.port, clean_start=False, properties=properties)
        for alarm in past["alarms"]:
            self._publish(alarm)

    @property
    def n_rows(self) -> int:
        """Rows given to the model, including those that it skipped."""
        return self.model.n_samples_seen_ if self.model.__sklearn_is_fitted__() else 0

    def run(self) -> None:
        """Work until `stopping` is set; then save, acknowledge and return."""
        self._connect()
        while not self.stopping:
            self._turn()
        # Wait a moment for alarms to be confirmed. Unconfirmed ones are in the checkpoint.
        patience = time.monotonic() + 2.0
        while self.unconfirmed and time.monotonic() < patience:
            self._turn()
        self._save()
        self.client.disconnect()
        log.info("stopped after %d rows", self.n_rows)

    def _turn(self) -> None:
        """Take the messages that arrive within a moment, and save if that is due."""
        if self.client.loop(0.1) != MQTTErrorCode.MQTT_ERR_SUCCESS:
            time.sleep(1.0)
            self._connect()
        # Messages count, not rows: malformed ones, too, wait for their acknowledgement.
        is_late = self.checkpoints.seconds_since_save >= self.options.every_seconds
        if self.n_unsaved >= self.options.every_messages or (self.n_unsaved and is_late):
            self._save()

    def _connect(self) -> None:
        # On another connection the same identifier may belong to another message. All messages come again.
        self.unacknowledged.clear()
        try:
            self.client.reconnect()
        except OSError as error:
            log.warning("no broker at %s:%d: %s", self.options.host, self.options.port, error)

    def _save(self) -> None:
        """Write a checkpoint, then acknowledge what it holds."""
        extra = {
            "arrivals": {topic: arrivals.record() for topic, arrivals in self.arrivals.items()},
            "counts": self.counts,
            "threshold": self.threshold,
            "alarms": list(self.unconfirmed.values()),
        }
        self.checkpoints.save(self.model, extra)
        self.n_unsaved = 0
        for packet in self.unacknowledged:
            self.client.ack(packet, 1)
        self.unacknowledged.clear()

    def _learn(self, topic: str, number: int | None, payload: bytes) -> None:
        """Score a row, learn it, and raise an alarm if it is novel."""
        try:
            if number is None:
                raise ValueError("expected a user property 'number'")
            row, novelty, features = row_of(payload, self.options.n_features), 0.0, []
            if self.threshold is not None and np.isfinite(row).all():
                novelty = float(self.model.novelty([row])[0])
                if novelty > self.threshold:
                    # Explained before the model learns it, and later finds it less novel.
                    features = np.argsort(-self.model.contributions([row])[0])[:FEATURES_IN_ALARM].tolist()
            self.model.partial_fit([row])
        except ValueError as error:
            self.counts["malformed"] += 1
            log.debug("%s, number %s: %s", topic, number, error)
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
            self.threshold = self.model.novelty_threshold(self.options.quantile)

    def _publish(self, alarm: str) -> None:
        # It is queued if there is no connection.
        self.unconfirmed[self.client.publish(self.options.alarm_topic, alarm, qos=1).mid] = alarm

    def _on_connect(self, client: Client, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        log.info("connected: %s, session %s", reason, "resumed" if flags.session_present else "new")
        client.subscribe(self.options.topic, qos=1)

    def _on_subscribe(self, client: Client, userdata: Any, packet: int, reasons: Any, properties: Any) -> None:
        if reasons[0].is_failure:
            raise SystemExit(f"sensor_service: the broker refuses --topic {self.options.topic}: {reasons[0]}")
        log.info("subscribed to %s", self.options.topic)

    def _on_message(self, client: Client, userdata: Any, message: MQTTMessage) -> None:
        number = number_of(message)
        with self.latency.time():
            if number is None or self.arrivals.setdefault(message.topic, Arrivals()).note(number):
                self._learn(message.topic, number, message.payload)
            else:
                self.counts["repeated"] += 1
        self.n_unsaved += 1
        if message.qos:
            self.unacknowledged.append(message.mid)

    def collect(self) -> Iterator[Metric]:
        """Read the metrics for a scrape, in another thread; counters continue after a restart."""
        n_rows, counts = self.n_rows, self.counts
        yield CounterMetricFamily("streamkpca_rows", "Rows, those that were not finite too.", n_rows)
        rejected = CounterMetricFamily("streamkpca_rejected", "Messages that taught nothing.", labels=["reason"])
        rejected.add_metric(["not finite"], self.model.n_rows_rejected_ if n_rows else 0)
        rejected.add_metric(["malformed"], counts["malformed"])
        yield rejected
        yield CounterMetricFamily("streamkpca_repeated", "Messages that came again.", counts["repeated"])
        yield CounterMetricFamily("streamkpca_alarms", "Rows above the threshold of their time.", counts["alarms"])
        missing = sum(len(arrivals.missing) for arrivals in list(self.arrivals.values()))
        yield GaugeMetricFamily("streamkpca_missing", "Messages that numbers say were sent, and never came.", missing)
        age = self.checkpoints.seconds_since_save
        yield GaugeMetricFamily("streamkpca_checkpoint_age_seconds", "Time since the last checkpoint.", age)
        yield GaugeMetricFamily("streamkpca_atoms", "Rows kept as basis.", self.model.n_atoms_ if n_rows else 0)
        share = self.model.unexplained_energy_ratio_ if n_rows else 0.0
        yield GaugeMetricFamily("streamkpca_unexplained_energy_ratio", "Share of the energy outside it.", share)


def main() -> None:
    """Run the service."""
    parser = argparse.ArgumentParser(description="Learn from an MQTT broker's messages; raise alarms; count all once.")
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="the broker's (default %(default)s)")
    add("--port", type=int, default=1883, help="the broker's (default %(default)s)")
    add("--client-id", default="streamkpca", help="names the session that the broker keeps (default %(default)s)")
    add("--topic", required=True, help="what to learn from; a filter like plant/+")
    add("--alarm-topic", default="alarms", help="where alarms go (default %(default)s)")
    add("--n-features", type=int, required=True, help="numbers in a message")
    add("--checkpoint", type=Path, required=True, help="model.npz makes model-00000001.npz and so on")
    add("--every-messages", type=int, default=1000, help="between checkpoints at most (default %(default)s)")
    add("--every-seconds", type=float, default=5.0, help="between checkpoints at most (default %(default)s)")
    add("--metrics-port", type=int, default=9464, help="for Prometheus, on 127.0.0.1 (default %(default)s)")
    add("--kernel", default="rbf", help="a name or an expression; new models only (default %(default)s)")
    add("--atoms", type=int, default=256, help="budget of atoms; new models only (default %(default)s)")
    add("--alarms-after", type=int, default=5000, help="rows before the first alarm (default %(default)s)")
    add("--quantile", type=float, default=0.999, help="share of rows below the threshold (default %(default)s)")
    options = parser.parse_args()
    if not 1 <= options.every_messages <= 65535:
        parser.error("--every-messages must be from 1 to 65535, the most that MQTT leaves unacknowledged")
    if topic_matches_sub(options.topic, options.alarm_topic):
        parser.error(f"--topic {options.topic} takes in --alarm-topic {options.alarm_topic}; choose another")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    service = Service(options)
    for wanted in (signal.SIGTERM, signal.SIGINT):
        signal.signal(wanted, lambda *_: setattr(service, "stopping", True))
    server, _ = start_http_server(options.metrics_port, addr="127.0.0.1", registry=service.registry)
    log.info("metrics: http://127.0.0.1:%d/metrics", server.server_port)
    service.run()


if __name__ == "__main__":
    main()
