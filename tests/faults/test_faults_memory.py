"""Memory beside input and output: every query, and learning, takes a few MiB however many rows come in one call."""

import copy
import gc
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from streamkpca import KernelPCA, StreamingKernelPCA, kernels
from streamkpca.monitoring import Monitor

MIB = 2**20
# The promise is 64 MiB; this is less than what a float64 copy of the rows below takes.
LIMIT = 20 * MIB
# In float64 they take 22 MiB.
ROWS = np.random.default_rng(3).normal(size=(90_000, 32)).astype(np.float32)
FEW = ROWS[:4000]


def peak_of(act):
    """Return the bytes that a call took at most, beyond what is left when it ends: numpy reports all of its arrays."""
    gc.collect()
    tracemalloc.start()
    try:
        answer = act()
        left, most = tracemalloc.get_traced_memory()
        del answer
        return most - left
    finally:
        tracemalloc.stop()


def strided(rows):
    wide = np.empty((len(rows), 2 * rows.shape[1]))
    wide[:, ::2] = rows
    return wide[:, ::2]


LAYOUTS = {
    "Fortran": lambda rows: np.asfortranarray(rows, dtype=np.float64),
    "strided": strided,
    "float32": lambda rows: rows,
    "big-endian": lambda rows: rows.astype(">f8"),
    "pandas": lambda rows: pd.DataFrame(rows.astype(np.float64)).rename(columns=str),
    "sparse": csr_array,
}

QUERIES = {
    "transform": lambda model, rows: model.transform(rows),
    "novelty": lambda model, rows: model.novelty(rows),
    "score_samples": lambda model, rows: model.score_samples(rows),
    "reconstruction_error": lambda model, rows: model.reconstruction_error(rows),
    "error beside axes": lambda model, rows: model.reconstruction_error(rows, 2),
}
# They take some time for each row, and are asked about few.
SLOW_QUERIES = {
    "weighted score": lambda model, rows: model.score(rows, sample_weight=np.ones(len(rows))),
    "inverse_transform": lambda model, rows: model.inverse_transform(rows[:, :3]),
}


@pytest.mark.parametrize("kind", [StreamingKernelPCA, KernelPCA])
def test_queries_take_little_memory_beside_rows_and_answers(kind):
    is_stream, peaks = kind is StreamingKernelPCA, {}
    model = StreamingKernelPCA(3, max_atoms=16).fit(FEW) if is_stream else KernelPCA(3).fit(FEW[:120])
    for query, ask in (QUERIES | SLOW_QUERIES).items():
        rows = ROWS if query in QUERIES and is_stream else FEW
        # Part of what is prepared for the first answer stays.
        ask(model, rows[:100])
        peaks[query] = peak_of(lambda ask=ask, rows=rows: ask(model, rows))
    assert max(peaks.values()) < LIMIT, peaks


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_of_any_layout_are_converted_in_parts(layout):
    given, few = LAYOUTS[layout](ROWS), LAYOUTS[layout](FEW)
    model = StreamingKernelPCA(3, max_atoms=16).fit(few)
    model.transform(few)
    peaks = {
        "transform": peak_of(lambda: model.transform(given)),
        "partial_fit": peak_of(lambda: StreamingKernelPCA(3, max_atoms=8, missing="skip").partial_fit(given)),
    }
    assert max(peaks.values()) < LIMIT, peaks
    # The same rows as float64 in C order are not converted; up to rounding, as products have other shapes.
    np.testing.assert_allclose(
        model.novelty(few), model.novelty(np.ascontiguousarray(FEW, dtype=np.float64)), rtol=1e-9, atol=1e-12
    )


def test_parts_of_wide_rows_are_short():
    d = 20_000
    rows = np.random.default_rng(4).normal(size=(200, d)).astype(np.float32)
    model = StreamingKernelPCA(3, max_atoms=8, kernel=kernels.RBF(1.0 / d), block_size=64, reservoir_size=16)
    model.fit(rows[:64])
    peaks = {}
    for query, ask in (QUERIES | SLOW_QUERIES).items():
        asked = rows if query in QUERIES else rows[:10]
        ask(model, rows[:2])
        peaks[query] = peak_of(lambda ask=ask, asked=asked: ask(model, asked))
    # Found rows, and differences from each atom, are as wide as the rows.
    assert max(peaks.values()) < 64 * MIB, peaks
    assert max(peaks[query] for query in QUERIES) < LIMIT, peaks
    # Learning keeps rows to choose atoms from, but no more for more rows in a call.
    twin = copy.deepcopy(model)
    pieces = peak_of(lambda: [model.partial_fit(piece) for piece in np.array_split(rows, 20)])
    at_once = peak_of(lambda: twin.partial_fit(rows))
    assert at_once < pieces + 64 * MIB, (at_once, pieces)


def test_a_monitor_takes_little_memory_beside_rows_and_record():
    rows = np.random.default_rng(5).normal(size=(3000, 512)).astype(np.float32)
    monitor = Monitor(StreamingKernelPCA(3, kernel=kernels.RBF(0.002), max_atoms=8, block_size=64))
    monitor.update(rows[:1000])
    # A search for atoms takes what it takes.
    search = peak_of(lambda: [copy.deepcopy(monitor).update(piece) for piece in np.array_split(rows[:1500], 3)])
    peaks = {
        "update": peak_of(lambda: monitor.update(rows)) - search,
        "stacked": peak_of(lambda: monitor.stack(rows)),
    }
    timed = Monitor(StreamingKernelPCA(3, kernel=kernels.RBF(0.5), max_atoms=8, block_size=64), max_gap=5.0)
    timed.update(ROWS[:1000, :2], time=np.arange(-1000.0, 0.0))
    peaks["times"] = peak_of(lambda: timed.update(ROWS[:3000, :2], time=np.arange(3000.0)))
    assert max(peaks.values()) < LIMIT // 2, peaks


def test_certificates_and_thresholds_take_memory_like_the_model():
    model, peaks = StreamingKernelPCA(3, max_atoms=16, kernel=kernels.RBF(0.02)).partial_fit(ROWS[:20_000]), {}
    asked = {
        "captured_energy": model.captured_energy,
        "novelty_threshold": model.novelty_threshold,
        "eigenvalue_bounds_": lambda: model.eigenvalue_bounds_,
        "refit": model.refit,
        "to_bytes": model.to_bytes,
    }
    for query, ask in asked.items():
        ask()
        peaks[query] = peak_of(ask)
    assert max(peaks.values()) < LIMIT, peaks
