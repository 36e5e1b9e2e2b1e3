"""Damaged and forged files: each loads as the model that was saved, as another consistent one, or not at all.

HYPOTHESIS_PROFILE=nightly tries 10^5 of them.
"""

import gc
import os
import time
import tracemalloc
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from corruptions import (
    CHANGED_ENTRIES,
    DAMAGES,
    assert_legitimate,
    changed_array,
    entries,
    load_or_refuse,
    models,
    repacked,
    unpacked,
    with_entry,
    without_entry,
)

from streamkpca import StreamingKernelPCA
from streamkpca.errors import SparsityWarning

pytestmark = pytest.mark.faults

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
N_DAMAGES = 91_000 if NIGHTLY else 1_400
# Every n-th of the 12,000 contradictory files is tried, and every n-th of those that load learns more rows.
EVERY, EVERY_LEARNS = (1, 1) if NIGHTLY else (11, 3)
# A load that takes longer hangs; usually it takes 5 ms.
LONGEST = 60.0
# Memory that Python, numpy and zipfile take for any file.
FEW_MB = 3 * 2**20

MODELS = {name: model.to_bytes({"offset": [1, {"a": None}]}) for name, model in models().items()}

# Parts that nothing else in the file determines, see `check_stream`. Every other change must be found.
FREE_ARRAYS = {
    "pending.rows", "pending.weights", "atoms.weights", "atoms.exposure", "atoms.positions", "settled.first",
    "settled.second", "recent.first", "recent.second", "jury.rows", "jury.weights", "jury.keys", "jury.positions",
    "reservoir.rows", "reservoir.weights", "reservoir.keys", "reservoir.positions",
    # They settle the kernel again; what the stream forgot since is not kept.
    "settling.weights",
} | {
    f"{name}.{part}"
    for name in ("scheduled", "published")
    for part in ("sample", "atom_rows", "atoms", "weights", "eigenvalues", "eigenvalue_bounds",
                 "explained_variance_ratio")
}  # fmt: skip
FREE_ENTRIES = {
    "extra", "extra.*", "parameters.*",
    "stream.block_size", "stream.reservoir_size", "stream.seed", "stream.n_rejected",
    "stream.n_rows_before", "stream.n_rows_at_refit", "stream.feature_names", "stream.published_as_scheduled",
    "stream.summary.n_rows", "stream.summary.last_drift", "stream.summary.trend.*", "stream.summary.pace.*",
    "stream.summary.losses.*", "stream.summary.jury.size", "stream.summary.reservoir.size",
} | {
    f"stream.summary.{sums}.{part}"
    for sums in ("settled", "recent")
    for part in ("energy", "largest_energy", "total_weight", "total_squared_weight")
} | {
    f"stream.{name}.{part}"
    for name in ("scheduled", "published")
    for part in ("noise_variance", "total_weight", "unexplained_energy_ratio")
}  # fmt: skip


# Atoms that moved are kept nowhere else: what leaves their kernel values alone, as a reflection of them all, passes.
MOVED = {"fitted", "moved"}


def is_free(place: Any, name: str) -> bool:
    if place == "atoms.rows":
        return name in MOVED
    if isinstance(place, str):
        return place in FREE_ARRAYS
    return ".".join(place) in FREE_ENTRIES or ".".join((*place[:-1], "*")) in FREE_ENTRIES


class Tally:
    """Counts of the outcomes, and the longest time."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.longest = 0.0

    def load(self, data: bytes) -> StreamingKernelPCA | None:
        start = time.perf_counter()
        model = load_or_refuse(data)
        self.longest = max(self.longest, time.perf_counter() - start)
        self.outcomes["refused" if model is None else "loaded"] += 1
        return model

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        return f"{counts}; the longest took {self.longest:.2f} s"


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_files_load_to_the_same_model_or_not_at_all(kind: str) -> None:
    tally, rng = Tally(), np.random.default_rng([11, len(kind)])
    for number in range(N_DAMAGES // len(DAMAGES)):
        data = list(MODELS.values())[number % len(MODELS)]
        model = tally.load(DAMAGES[kind](data, rng))
        if model is not None:
            assert model.to_bytes(model.extra_) == data
    print(f"{kind}: {tally}")
    assert tally.longest < LONGEST


def changes(data: bytes) -> Iterator[tuple[Any, str, bytes]]:
    """Yield well-formed archives with correct checksums and changed contents."""
    header, arrays = unpacked(data)
    for name, values in arrays.items():
        for change, new in changed_array(values):
            yield name, change, repacked(header, {**arrays, name: new})
        yield name, "missing", repacked(header, {other: arrays[other] for other in arrays if other != name})
        yield name, "compressed", repacked(header, arrays, zipfile.ZIP_DEFLATED)
    yield "stranger", "added", repacked(header, {**arrays, "stranger": np.zeros(3)})
    for place in entries(header):
        yield place, "missing", repacked(without_entry(header, place), arrays)
        for change, new in CHANGED_ENTRIES:
            yield place, change, repacked(with_entry(header, place, new), arrays)


@pytest.mark.parametrize("name", MODELS)
def test_contradictory_files_are_refused_and_all_others_are_consistent(name: str) -> None:
    tally = Tally()
    assert load_or_refuse(repacked(*unpacked(MODELS[name]))) is not None
    for number, (place, change, data) in enumerate(changes(MODELS[name])):
        if number % EVERY:
            continue
        model = tally.load(data)
        if model is None or model.to_bytes(model.extra_) == MODELS[name]:
            continue
        tally.outcomes["loaded as another model, without a contradiction"] += 1
        assert is_free(place, name), f"{place}: {change} was not found"
        if number % EVERY_LEARNS == 0:
            with warnings.catch_warnings():
                # A noise variance that leaves no atom active, say.
                warnings.simplefilter("ignore", SparsityWarning)
                assert_legitimate(model)
    print(f"{name}: {tally}")
    assert tally.longest < LONGEST


def allocated(data: bytes) -> tuple[int, StreamingKernelPCA | None]:
    """Return the most memory that loading takes beside the bytes themselves."""
    gc.collect()
    tracemalloc.start()
    try:
        model = load_or_refuse(data)
        return tracemalloc.get_traced_memory()[1], model
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("m", "d"), [(4, 2), (64, 8), (256, 16), (32, 2000), *([(512, 64)] if NIGHTLY else [])])
def test_honest_files_take_twice_their_size_to_load(m: int, d: int) -> None:
    rows = np.random.default_rng(0).normal(size=(2 * m + 300, d))
    model = StreamingKernelPCA(3, max_atoms=m, tolerance=0.0, block_size=128, noise_variance=None).partial_fit(rows)
    for refitted in (False, True):
        data = (model.refit() if refitted else model).to_bytes()
        load_or_refuse(data)
        peak, again = allocated(data)
        print(f"{m} atoms of {d} features: {len(data):,} bytes took {peak:,}, {peak / len(data):.2f} times as many")
        assert again is not None
        assert peak <= 2 * len(data) + FEW_MB


def hostile() -> Iterator[tuple[str, bytes]]:
    header, arrays = unpacked(MODELS["fading"])
    huge = 2**40
    for place in entries(header):
        value = header
        for name in place:
            value = value[name]
        if type(value) is int:
            yield f"{'.'.join(place)} is huge", repacked(with_entry(header, place, huge), arrays)
    yield "bomb", repacked(header, {**arrays, "atoms.rows": bytes(50_000_000)}, zipfile.ZIP_DEFLATED)
    yield "bomb of a header", repacked(b" " * 100_000_000, {}, zipfile.ZIP_DEFLATED)
    yield "many members", repacked(header, {f"{number}": b"" for number in range(100_000 if NIGHTLY else 20_000)})
    yield "wide header", repacked(b'{"a":[' + b"[]," * 1_300_000 + b"[]]}", {})
    yield "deep header", repacked(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, {})
    yield "header of strings", repacked(b'{"a":[' + b'"",' * 87_000 + b'""]}', {})
    yield "long names", repacked(b'{"' + b"a" * 4_000_000 + b'":1}', {})
    yield "long number", repacked(b'{"version":' + b"9" * 4_000_000 + b"}", {})
    yield "long kernel", repacked(with_entry(header, ("stream", "kernel"), "RBF()+" * 600_000), arrays)
    yield "long format", repacked(with_entry(header, ("format",), "x" * 4_000_000), arrays)
    yield "deep version", repacked(with_entry(header, ("version",), _nested(900)), arrays)
    # Sizes that the list of members claims, over what there is.
    data = bytearray(MODELS["fading"])
    place = data.find(b"PK\x01\x02")
    for size in (2**31, 2**32 - 2):
        data[place + 20 : place + 28] = size.to_bytes(4, "little") * 2
        yield f"a member of {size} bytes", bytes(data)


def _nested(depth: int) -> Any:
    inner: Any = []
    for _ in range(depth):
        inner = [inner]
    return inner


def test_hostile_files_take_no_more_memory_than_honest_ones() -> None:
    tally, most = Tally(), 0.0
    # Imports and compilation must not count for the first file.
    allocated_while(load_or_refuse(MODELS["fading"]))
    for name, data in hostile():
        peak, model = allocated(data)
        beyond = peak - 2 * len(data)
        most = max(most, beyond)
        assert beyond <= FEW_MB + (9 * 2**20 if "header" in name or "long" in name else 0), name
        tally.outcomes["refused" if model is None else "loaded"] += 1
        if model is not None:
            assert allocated_while(model) <= 2 * len(data) + FEW_MB, name
    print(f"hostile files: {tally}; at most {most / 2**20:.1f} MB beyond twice the file")


def allocated_while(model: StreamingKernelPCA) -> int:
    """Return the most memory that answering and learning a row takes."""
    tracemalloc.start()
    try:
        try:
            model.transform(np.zeros((1, 3)))
            model.partial_fit(np.zeros((1, 3)))
        except ValueError as error:
            if "cannot change within a stream" not in str(error) and "features" not in str(error):
                raise
        except MemoryError:
            # A parameter may request too many components.
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
