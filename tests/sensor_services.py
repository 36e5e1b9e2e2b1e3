"""The broker Mosquitto, its clients, and the example of a service in processes that may be killed."""

import ast
import base64
import importlib.util
import json
import multiprocessing
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import warnings
from collections.abc import Callable, Iterable
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pytest

import streamkpca
from streamkpca import Checkpointer, StreamingKernelPCA

mqtt = pytest.importorskip("paho.mqtt.client", reason="the service talks MQTT; needs the extra service")
parser = pytest.importorskip("prometheus_client.parser", reason="the service is measured; needs the extra service")

from paho.mqtt.enums import CallbackAPIVersion  # noqa: E402
from paho.mqtt.packettypes import PacketTypes  # noqa: E402
from paho.mqtt.properties import Properties  # noqa: E402

# Debian puts it where only root's PATH looks.
MOSQUITTO = shutil.which("mosquitto", path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"]))
needs_broker = pytest.mark.skipif(MOSQUITTO is None, reason="needs the broker Mosquitto (Debian: mosquitto)")

SCRIPT = Path(__file__).parents[1] / "examples" / "sensor_service.py"
GUIDE = str(ast.get_docstring(ast.parse(SCRIPT.read_text(encoding="utf-8"))))


def import_example() -> ModuleType:
    """Import the script as a module, once."""
    if "sensor_service" not in sys.modules:
        spec = importlib.util.spec_from_file_location("sensor_service", SCRIPT)
        assert spec is not None
        assert spec.loader is not None
        sys.modules["sensor_service"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["sensor_service"])
    return sys.modules["sensor_service"]


class Sent(NamedTuple):
    """A message of a sensor; `row` is None if the payload is garbage."""

    topic: str
    number: int
    payload: bytes
    row: npt.NDArray[np.float64] | None
    strange: bool = False


def wait_until(true: Callable[[], bool], what: str, *, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain until {what}"
        time.sleep(0.03)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def settings_of_the_guide() -> str:
    """Return the file mosquitto.conf that the example's docstring tells to write."""
    found = re.search(r"Write ``mosquitto\.conf``.*?::\n\n(.*?)\n\n3\. ", GUIDE, re.DOTALL)
    assert found is not None
    return "".join(f"{line.strip()}\n" for line in found[1].splitlines())


class Broker:
    """Mosquitto on a port of the loopback, with its memory in a folder; `changes` replace lines of the guide's."""

    def __init__(self, folder: Path, *changes: str) -> None:
        self.port, self.folder = free_port(), folder
        self.process: subprocess.Popen[bytes] | None = None
        # Mosquitto drops root's rights, and could not write here then.
        changes = (f"listener {self.port} 127.0.0.1", f"persistence_location {folder}/", "user root", *changes)
        replaced = {line.split()[0] for line in changes}
        lines = [line for line in settings_of_the_guide().splitlines() if line.split()[0] not in replaced]
        (folder / "mosquitto.conf").write_text("\n".join([*changes, *lines, ""]), encoding="utf-8")

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

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
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


class Peer:
    """A client of the test, which publishes in order and collects the messages of a topic."""

    def __init__(self, broker: Broker, name: str, topic: str | None = None, prepare: Any = None) -> None:
        self.received: list[Any] = []
        self.ready = threading.Event()
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=mqtt.MQTTv5)
        self.client.reconnect_delay_set(min_delay=1, max_delay=1)
        self.client.on_message = lambda client, userdata, message: self.received.append(message.payload)
        self.client.on_subscribe = lambda *_: self.ready.set()
        self.client.on_connect = lambda *_: self.client.subscribe(topic, qos=1) if topic else self.ready.set()
        if prepare is not None:
            prepare(self.client)
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 3600
        self.client.connect("127.0.0.1", broker.port, clean_start=False, properties=properties)
        self.client.loop_start()
        assert self.ready.wait(30)

    def publish(self, sent: Iterable[Sent], *, qos: int = 1) -> list[Any]:
        return [self.send(each.topic, each.payload, ("number", str(each.number)), qos=qos) for each in sent]

    def send(self, topic: str, payload: bytes, *user: tuple[str, str], qos: int = 1, retain: bool = False) -> Any:
        properties = Properties(PacketTypes.PUBLISH)
        for pair in user:
            properties.UserProperty = pair
        # The protocol numbers messages by 16 bits: a flood waits until enough of it has been acknowledged.
        while True:
            info = self.client.publish(topic, payload, qos=qos, retain=retain, properties=properties)
            if info.rc != mqtt.MQTT_ERR_QUEUE_SIZE:
                return info
            time.sleep(0.01)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(
    arguments: list[str], log: Path, environment: dict[str, str], prepare: Callable[[ModuleType], None] | None
) -> None:
    """Run the script in this process, which is a child of the fork server."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ.update(environment)
    warnings.simplefilter("error")
    sys.argv = [str(SCRIPT), *arguments]
    example = import_example()
    if prepare is not None:
        prepare(example)
    example.main()


class Service:
    """The example in a separate process, which may be killed and started again; `prepare` runs before it, there."""

    def __init__(self, folder: Path, port: int, *arguments: str, name: str = "model") -> None:
        self.folder = folder
        self.log = folder / f"{name}.log"
        self.checkpoint = folder / f"{name}.npz"
        self.arguments = ["--port", str(port), "--topic", "plant/+", "--n-features", "3", "--metrics-port", "0"]
        self.arguments += ["--checkpoint", str(self.checkpoint), *arguments]
        self.environment: dict[str, str] = {}
        self.prepare: Callable[[ModuleType], None] | None = None
        self.process: Any = None
        self.url = ""

    def start(self) -> None:
        self.log.write_text("", encoding="utf-8")
        given = (self.arguments, self.log, self.environment, self.prepare)
        self.process = _forks().Process(target=serve, args=given, daemon=True)
        self.process.start()
        wait_until(self._is_up, "the service is up")

    def run(self) -> subprocess.CompletedProcess[str]:
        """Run it as a command to its end, which must come soon."""
        command = [sys.executable, "-W", "error", str(SCRIPT), *self.arguments]
        paths = {"PYTHONPATH": str(Path(streamkpca.__file__).parents[1])}
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=os.environ | paths | self.environment,
            timeout=60,
            check=False,
        )

    def _is_up(self) -> bool:
        assert self.process.is_alive(), self.text()
        lines = [line for line in self.text().splitlines() if "metrics: " in line]
        self.url = lines[0].partition("metrics: ")[2] if lines else ""
        return bool(self.url)

    def wait_for(self, words: str) -> None:
        wait_until(lambda: words in self.text(), f"the service has said {words!r}")

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def kill(self) -> None:
        assert self.process.is_alive(), self.text()
        self.process.kill()
        self.process.join(30)

    def stop(self, *, code: int = 0) -> None:
        self.process.terminate()
        self.process.join(30)
        assert self.process.exitcode == code, self.text()

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(self.url, timeout=30) as answer:
            text = answer.read().decode()
        samples = [sample for family in parser.text_string_to_metric_families(text) for sample in family.samples]
        return {"/".join([sample.name, *sample.labels.values()]): sample.value for sample in samples}

    def n_handled(self) -> float:
        found = self.metrics()
        rejected = sum(found[f"streamkpca_rejected_total/{reason}"] for reason in ("malformed", "bad number", "failed"))
        return found["streamkpca_rows_total"] + rejected

    def wait_for_messages(self, n: int, *, seconds: float = 60.0) -> None:
        wait_until(lambda: self.n_handled() >= n, f"{n} messages are handled", seconds=seconds)

    def wait_for_metric(self, name: str, least: float) -> None:
        wait_until(lambda: self.metrics()[name] >= least, f"{name} is {least}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.is_alive():
            self.process.kill()
            self.process.join(30)

    def saved(self) -> StreamingKernelPCA | None:
        return Checkpointer(self.checkpoint).latest()


def _forks() -> Any:
    """Return a server of processes that have imported everything, and compiled what rows need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sensor_services_warm"])
    before = os.environ.get("PYTHONPATH")
    paths = [before, str(Path(__file__).parent), str(Path(streamkpca.__file__).parents[1])]
    # The server itself does not take over sys.path.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    try:
        ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before
    return context


def alarms_in(saved: StreamingKernelPCA) -> list[dict[str, Any]]:
    """Return the alarms in a checkpoint that the broker had not confirmed."""
    return [json.loads(alarm) for alarm in json.loads(base64.b64decode(saved.extra_["alarms"]))]


def numbers_in(saved: StreamingKernelPCA, topics: Iterable[str]) -> dict[str, list[int]]:
    """Return the first and highest number of each topic in a checkpoint, and the ends of its gaps."""
    fingerprint = import_example().fingerprint
    known = {topic: numbers for topic, *numbers in saved.extra_["arrivals"]["topics"]}
    return {topic: known[fingerprint(topic.encode())] for topic in topics}
