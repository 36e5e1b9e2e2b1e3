"""Does it find faults in real streams, and name their causes, with its defaults?

Labelled streams, unscaled, by family: a water circuit with valves (SKAB), a water network under attack (BATADAL), jet
engines (C-MAPSS), accelerometers (Daphnet), online services (JumpStarter), an office (occupancy), a forest's cover
types, application servers (ASD), servers (SMD), and the Tennessee Eastman plant (TEP, faults 1 to 10 after healthy
rows). At most the latest 10,000 rows of train are learned. Families weigh alike in the last line. Some defaults were
chosen on these streams; none depends on a label.

* **comes**: average precision of the rarities of a default `Monitor`, which updates on train and then on test;
  **declared**: train is declared healthy, by `Monitor().fit(train)`; **frozen**: declared, and it learns nothing after
  train.
* **model**: average precision of `StreamingKernelPCA().novelty`, and of peers, which learn train; columns are
  standardised by train.
* **VUS-PR**: volume under the surface of precision, recall and buffers of up to 100 rows [1]_, declared.
* **found**, **false events**: the share of anomalous segments in which an event begins, and the events that begin in
  1,000 healthy rows of test; **healthy in alarm**: the share of healthy rows of test that are alarms. As rows come,
  and declared.
* **first cause**, **Hit@100%**: where the features of an event are labelled (ASD, SMD), the share of labelled events
  found whose first cause is one of them, and the share of the labelled features among as many of the event's ranking.

.. [1] J. Paparrizos et al., "Volume under the surface", PVLDB 15(11), 2022.
"""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from common import Array, Figures, find_files, make_table, run, show, standardise
from detection_metrics import average_precision, segments, vus_pr
from peers import Peer, choose_peers

from streamkpca import StreamingKernelPCA
from streamkpca.monitoring import Monitor

# Rows of train that a server's monitor sees, and streams of a family in a run.
LATEST = 10_000
N_STREAMS = {"whole": None, "quick": 1, "tiny": 1}
MOST_ROWS = {"whole": None, "quick": 4000, "tiny": 600}
FAULT_AT, HEALTHY_ROWS = 160, 480
WAYS = ("comes", "declared", "frozen")
COUNTED = tuple(f"{what}, {way}" for way in WAYS[:2] for what in ("found", "false events", "healthy in alarm"))
AVERAGED = (*WAYS, "VUS-PR", *COUNTED)


class Stream(NamedTuple):
    """Rows to learn, rows to judge, and the labelled features of events by their rows."""

    name: str
    train: Array
    test: Array
    labels: Array
    causes: list[tuple[int, int, set[int]]]


def read_causes(path: Path) -> list[tuple[int, int, set[int]]]:
    """Read the labelled features of a file's events: rows from, to and the positions, which the file counts from 1."""
    labels = path.parent / "interpretation_label" / f"{path.stem}.txt"
    found = []
    for line in labels.read_text().split() if labels.exists() else ():
        ends, features = line.split(":")
        first, last = map(int, ends.split("-"))
        found.append((first, last, {int(feature) - 1 for feature in features.split(",")}))
    return found


def read_families(data: Path | None, size: str) -> dict[str, list[Stream]]:
    """Read the streams of every family that is there."""
    families: dict[str, list[Stream]] = {}
    for folder in ("streams", "asd", "smd"):
        for path in find_files(data, folder):
            with np.load(path) as file:
                train, test, labels = file["train"], file["test"], file["test_label"] != 0
            name = path.stem.partition("-")[0] if folder == "streams" else folder
            if len(families.setdefault(name, [])) != N_STREAMS[size]:
                families[name].append(_shorten(Stream(path.stem, train, test, labels, read_causes(path)), size))
    for path in find_files(data, "tep"):
        families["tep"] = [_shorten(stream, size) for stream in read_plant(path)][: N_STREAMS[size]]
    return families


def _shorten(stream: Stream, size: str) -> Stream:
    """Take the latest rows of train, and in a smaller run those of test about the first fault."""
    train, most = np.ascontiguousarray(stream.train[-LATEST:], dtype=float), MOST_ROWS[size]
    start = 0 if most is None else max(int(np.argmax(stream.labels)) - most // 2, 0)
    rows = slice(start, None if most is None else start + most)
    test = np.ascontiguousarray(stream.test[rows], dtype=float)
    causes = [(first - start, last - start, features) for first, last, features in stream.causes if first >= start]
    return Stream(stream.name, train, test, stream.labels[rows], causes)


def read_plant(path: Path) -> Iterator[Stream]:
    """Yield the faults of the plant, each after healthy rows."""
    with np.load(path) as file:
        plant = {name: file[name] for name in file.files}
    for name in sorted(set(plant) - {"d00", "d00_te"}):
        test = np.vstack([plant["d00_te"][:HEALTHY_ROWS], plant[name]])
        yield Stream(name, plant["d00"], test, np.arange(len(test)) >= HEALTHY_ROWS + FAULT_AT, [])


def judge_causes(monitor: Monitor, stream: Stream) -> Iterator[tuple[float, float]]:
    """Yield, for each labelled event that has an alarm, whether the first cause is right, and the share of all."""
    events = monitor.events_
    for first, last, features in stream.causes:
        start, end = first + len(stream.train), last + len(stream.train)
        met = [event for event in events if event.start < end and event.end > start and event.features]
        if met:
            ranking = max(met, key=lambda event: event.severity).ranking
            yield float(ranking[0] in features), len(features & set(ranking[: len(features)])) / len(features)


def judge(stream: Stream, peers: dict[str, Peer]) -> tuple[Figures, list[tuple[float, float]]]:
    """Return the figures of a stream, and the causes of its events."""
    comes, declared = Monitor(), Monitor().fit(stream.train)
    comes.update(stream.train)
    frozen = copy.deepcopy(declared)
    frozen.learn = "none"
    monitors = dict(zip(WAYS, (comes, declared, frozen), strict=True))
    records = {way: monitor.update(stream.test) for way, monitor in monitors.items()}
    scores = {way: np.nan_to_num(record.rarity) for way, record in records.items()}
    train, test = (standardise(rows, stream.train) for rows in (stream.train, stream.test))
    scores["model"] = StreamingKernelPCA().partial_fit(train).novelty(test)
    for name, peer in peers.items():
        scores[name] = np.nan_to_num(peer(train)[1](test))
    found = {name: average_precision(stream.labels, values) for name, values in scores.items()}
    found["VUS-PR"] = vus_pr(stream.labels, scores["declared"])
    for way in WAYS[:2]:
        counts = count_events(monitors[way], len(stream.train), stream.labels)
        alarms = float(records[way].is_alarm[~stream.labels].mean())
        names = [name for name in COUNTED if name.endswith(way)]
        found |= dict(zip(names, (*counts, alarms), strict=True))
    return found, list(judge_causes(comes, stream))


def count_events(monitor: Monitor, first: int, labels: Array) -> tuple[float, float]:
    """Return the share of faults in which an event begins, and the events that begin in 1,000 healthy rows.

    The labels (n,) are those of the rows from position `first` on.
    """
    begins = np.zeros(len(labels), dtype=bool)
    begins[[event.start - first for event in monitor.events_ if event.start >= first]] = True
    found = float(np.mean([begins[start:end].any() for start, end in segments(labels)]))
    return found, float(1000.0 * begins[~labels].mean())


def measure(size: str, data: Path | None) -> Figures:
    """Judge every stream of every family."""
    streams: Figures = {}
    causes: dict[str, list[tuple[float, float]]] = {}
    peers = choose_peers("5th neighbour", "Mahalanobis", "isolation forest")
    for family, members in read_families(data, size).items():
        for stream in members:
            if stream.labels.any() and not stream.labels.all():
                streams.setdefault(family, {})[stream.name], named = judge(stream, peers)
                causes.setdefault(family, []).extend(named)
    if not streams:
        return {}
    names = list(next(iter(next(iter(streams.values())).values())))
    families = {
        family: {name: float(np.mean([found[name] for found in members.values()])) for name in names}
        for family, members in streams.items()
    }
    for family, named in causes.items():
        if named:
            first, hit = np.mean(named, axis=0)
            families[family] |= {"first cause": float(first), "Hit@100%": float(hit), "events": len(named)}
    macro = {name: float(np.mean([found[name] for found in families.values()])) for name in names}
    return {"families": families, "macro": macro, "streams": streams}


def describe(figures: Figures) -> str:
    """Return a line for each family, and the means."""
    names = [name for name in figures["macro"] if name not in AVERAGED]
    columns = [*AVERAGED[:3], *names, *AVERAGED[3:]]
    lines = {
        f"{family} ({len(figures['streams'][family])})": found for family, found in figures["families"].items()
    } | {"families alike": figures["macro"]}
    table = make_table(
        ["family (streams)", *columns], [[title, *map(line.get, columns)] for title, line in lines.items()]
    )
    causes = [
        f"{family}: first cause {show(found['first cause'])}, Hit@100% {show(found['Hit@100%'])} of "
        f"{found['events']} events"
        for family, found in figures["families"].items()
        if "events" in found
    ]
    return f"{table}\n\nCauses by default, {'; '.join(causes)}." if causes else table


if __name__ == "__main__":
    run(measure, describe)
