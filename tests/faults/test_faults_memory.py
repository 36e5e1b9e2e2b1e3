"""Memory beside input and output: every query, and learning, takes a few MiB however many rows come in one call.

HYPOTHESIS_PROFILE=nightly asks about 300,000 rows instead of 30,000 to 90,000, and about 10^7 of two features.
"""

import copy
import gc
import os
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pytest

from streamkpca import ApproximateKernelPCA, KernelPCA, SparseKernelPCA, StreamingKernelPCA, kernels
from streamkpca.monitoring import Monitor

pytestmark = [
    pytest.mark.faults,
    pytest.mark.filterwarnings("ignore::streamkpca.errors.LocalKernelWarning"),
]

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
MIB = 2**20
# The promise is 64 MiB; this is less than what a float64 copy of the rows below takes.
LIMIT = 20 * MIB
N, D = (300_000 if NIGHTLY else 90_000), 32
ROWS = np.random.default_rng(3).normal(size=(N, D)).astype(np.float32)
FEW = ROWS[:4000]


def peak_of(act: Callable[[], Any]) -> int:
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


def strided(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    wide = np.empty((len(rows), 2 * rows.shape[1]))
    wide[:, ::2] = rows
    return wide[:, ::2]


def nullable(rows: npt.NDArray[Any]) -> pd.DataFrame:
    table = pd.DataFrame(rows.astype(np.float64))
    types = {0: "Float64", 1: "float64[pyarrow]", 2: "float32"}
    return table.astype(types).rename(columns=str)


LAYOUTS: dict[str, Callable[[npt.NDArray[Any]], Any]] = {
    "C": lambda rows: rows.astype(np.float64),
    "Fortran": lambda rows: np.asfortranarray(rows, dtype=np.float64),
    "strided": strided,
    "float32": lambda rows: rows,
    "int32": lambda rows: (10 * rows).astype(np.int32),
    "big-endian": lambda rows: rows.astype(">f8"),
    "pandas": lambda rows: pd.DataFrame(rows.astype(np.float64)).rename(columns=str),
    "nullable pandas": nullable,
    "polars": lambda rows: pl.DataFrame(rows.astype(np.float64)),
}

MODELS: dict[str, Callable[[], Any]] = {
    "streaming": lambda: StreamingKernelPCA(3, max_atoms=16).fit(FEW),
    "exact": lambda: KernelPCA(3).fit(FEW[:120]),
    "sparse": lambda: SparseKernelPCA(3).fit(FEW[:120]),
    "approximate": lambda: ApproximateKernelPCA(3, max_atoms=16).fit(FEW[:1000]),
}

QUERIES: dict[str, Callable[[Any, Any], Any]] = {
    "transform": lambda model, rows: model.transform(rows),
    "novelty": lambda model, rows: model.novelty(rows),
    "score_samples": lambda model, rows: model.score_samples(rows),
    "reconstruction_error": lambda model, rows: model.reconstruction_error(rows),
    "error beside axes": lambda model, rows: model.reconstruction_error(rows, 2),
    "hotelling_t2": lambda model, rows: model.hotelling_t2(rows),
}
# On the base of these tests they took 12 kB a row, or are slow.
SLOW_QUERIES: dict[str, Callable[[Any, Any], Any]] = {
    "score": lambda model, rows: model.score(rows),
    "weighted score": lambda model, rows: model.score(rows, sample_weight=np.ones(len(rows))),
    "inverse_transform": lambda model, rows: model.inverse_transform(rows[:, :3]),
    "contributions": lambda model, rows: model.contributions(rows),
    "contributions to SPE": lambda model, rows: model.contributions(rows, 2),
}


def report(kind: str, peaks: dict[str, int]) -> None:
    print(f"{kind}: {len(peaks)} calls, at most {max(peaks.values()) / MIB:.1f} MiB beside input and output")


@pytest.mark.parametrize("name", MODELS)
def test_queries_take_little_memory_beside_rows_and_answers(name: str) -> None:
    model, peaks = MODELS[name](), {}
    for query, ask in (QUERIES | SLOW_QUERIES).items():
        rows = ROWS if NIGHTLY or query in QUERIES else FEW
        # What is prepared for the first answer stays.
        ask(model, rows[:100])
        peaks[query] = peak_of(lambda ask=ask, rows=rows: ask(model, rows))  # type: ignore[misc]
    report(name, peaks)
    assert max(peaks.values()) < LIMIT, peaks


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_of_any_layout_are_converted_in_parts(layout: str) -> None:
    given = LAYOUTS[layout](ROWS)
    few = LAYOUTS[layout](FEW)
    model, peaks = StreamingKernelPCA(3, max_atoms=16).fit(few), {}
    model.transform(few)
    peaks["transform"] = peak_of(lambda: model.transform(given))
    peaks["partial_fit"] = peak_of(lambda: StreamingKernelPCA(3, max_atoms=16).partial_fit(given))
    if layout == "float32" or NIGHTLY:
        for settings in ({"dtype": "float32"}, {"on_bad_rows": "skip"}, {"half_life": 1e4}):
            new = StreamingKernelPCA(3, max_atoms=16, **settings)  # type: ignore[arg-type]
            peaks[f"partial_fit {settings}"] = peak_of(lambda new=new: new.partial_fit(given))  # type: ignore[misc]
            peaks[f"fit {settings}"] = peak_of(lambda new=new: new.fit(given))  # type: ignore[misc]
        new = StreamingKernelPCA(3, max_atoms=None, tolerance=0.9, kernel="linear")
        peaks["fit without a budget"] = peak_of(lambda: new.fit(given))
    report(layout, peaks)
    assert max(peaks.values()) < LIMIT, peaks


def test_parts_give_the_answers_of_all_rows_at_once() -> None:
    """The same rows as float64 in C order are not converted; up to rounding, as products have other shapes."""
    rows, n_compared = ROWS[:18_000], 0
    model = StreamingKernelPCA(3, max_atoms=16).fit(FEW)
    answers: dict[str, Any] = {}
    for layout, convert in LAYOUTS.items():
        given = convert(rows)
        plain = given.astype(np.float64) if layout == "int32" else rows.astype(np.float64)
        key = "int32" if layout == "int32" else ""
        if key not in answers:
            answers[key] = {query: ask(model, plain) for query, ask in QUERIES.items()}
            answers[key]["learned"] = StreamingKernelPCA(3, max_atoms=8).partial_fit(plain)
        for query, ask in QUERIES.items():
            np.testing.assert_allclose(ask(model, given), answers[key][query], rtol=1e-9, atol=1e-12, err_msg=query)
            n_compared += 1
        learned = StreamingKernelPCA(3, max_atoms=8).partial_fit(given)
        # Names of columns differ.
        for attribute in ("atoms_", "eigenvalues_", "total_weight_"):
            np.testing.assert_array_equal(getattr(learned, attribute), getattr(answers[key]["learned"], attribute))
    print(f"{n_compared} answers to rows of {len(LAYOUTS)} layouts, the same")


@pytest.mark.parametrize("d", [2000, 20_000])
def test_parts_of_wide_rows_are_short(d: int) -> None:
    rows = np.random.default_rng(4).normal(size=(1500 if d == 2000 else 200, d)).astype(np.float32)
    kernel = kernels.RBF(1.0 / d)
    model = StreamingKernelPCA(3, max_atoms=8, kernel=kernel, block_size=64, reservoir_size=16).fit(rows[:64])
    peaks = {}
    for query, ask in (QUERIES | SLOW_QUERIES).items():
        asked = rows if query in QUERIES else rows[: 200_000 // d]
        ask(model, rows[:16])
        peaks[query] = peak_of(lambda ask=ask, asked=asked: ask(model, asked))  # type: ignore[misc]
    report(f"{d} features", peaks)
    # Found rows, and differences from each atom, are as wide as the rows.
    assert max(peaks.values()) < 64 * MIB, peaks
    assert max(peaks[query] for query in QUERIES) < LIMIT, peaks
    # Learning keeps rows to choose atoms from, but no more for more rows in a call.
    twin = copy.deepcopy(model)
    pieces = peak_of(lambda: [model.partial_fit(piece) for piece in np.array_split(rows, 20)])
    at_once = peak_of(lambda: twin.partial_fit(rows))
    assert at_once < pieces + 64 * MIB, (at_once, pieces)


def test_a_monitor_takes_little_memory_beside_rows_and_record() -> None:
    n = 60_000 if NIGHTLY else 3000
    rows = np.random.default_rng(5).normal(size=(n, 512)).astype(np.float32)
    monitor = Monitor(StreamingKernelPCA(3, kernel=kernels.RBF(0.002), max_atoms=8, block_size=64), lags=2)
    monitor.update(rows[:1000])
    # A search for atoms takes what it takes.
    search = peak_of(lambda: [copy.deepcopy(monitor).update(piece) for piece in np.array_split(rows[:1500], 3)])
    peaks = {
        "update": peak_of(lambda: monitor.update(rows)) - search,
        "stacked": peak_of(lambda: monitor.stacked(rows)),
    }
    timed = Monitor(StreamingKernelPCA(3, kernel=kernels.RBF(0.5), max_atoms=8, block_size=64), max_gap=5.0)
    timed.update(ROWS[:1000, :2])
    peaks["times"] = peak_of(lambda: timed.update(ROWS[:3000, :2], time=np.arange(3000.0)))
    report("monitor", peaks)
    assert max(peaks.values()) < LIMIT // 2, peaks


def test_certificates_and_thresholds_take_memory_like_the_model() -> None:
    model, peaks = StreamingKernelPCA(3, max_atoms=16, kernel=kernels.RBF(0.02)).partial_fit(ROWS[:20_000]), {}
    asked: dict[str, Callable[[], Any]] = {
        "captured_energy": model.captured_energy,
        "novelty_threshold": model.novelty_threshold,
        "control_limits": model.control_limits,
        "eigenvalue_bounds_": lambda: model.eigenvalue_bounds_,
        "width_scores_": lambda: model.width_scores_,
        "sparsity_path": lambda: model.sparsity_path([0.1, 0.01]),
        "refit": model.refit,
        "to_bytes": model.to_bytes,
    }
    for query, ask in asked.items():
        ask()
        peaks[query] = peak_of(ask)
    report("certificates", peaks)
    assert max(peaks.values()) < LIMIT, peaks


def test_rows_refused_in_a_later_part_are_named_by_their_place() -> None:
    rows = ROWS[:60_000].copy()
    model = StreamingKernelPCA(3, max_atoms=16).fit(FEW)
    rows[50_000, 7], rows[55_000, 1] = np.nan, np.inf
    before = model.to_bytes()
    for act in (model.partial_fit, model.transform, model.score, model.contributions, StreamingKernelPCA().fit):
        for layout in ("float32", "pandas", "polars"):
            with pytest.raises(ValueError, match=r"NaN \(first at row 50000, column 7; 2 of 60000 rows"):
                act(LAYOUTS[layout](rows))
    assert model.to_bytes() == before
    skipping = StreamingKernelPCA(3, max_atoms=16, on_bad_rows="skip").partial_fit(rows)
    pieces = StreamingKernelPCA(3, max_atoms=16, on_bad_rows="skip")
    for piece in np.array_split(rows.astype(np.float64), 7):
        pieces.partial_fit(piece)
    assert skipping.n_rows_rejected_ == 2
    assert skipping.to_bytes() == pieces.to_bytes()

    linear = StreamingKernelPCA(1, kernel="linear").fit(FEW[:500])
    far = ROWS[:30_000].astype(np.longdouble)
    far[29_000] = 1e308
    for ask in (linear.transform, linear.novelty, linear.contributions, linear.hotelling_t2, linear.score):
        with pytest.raises(ValueError, match="kernel: row 29000 is so far away"), np.errstate(all="ignore"):
            ask(far)

    single = StreamingKernelPCA(1, dtype="float32")
    with pytest.raises(ValueError, match=r"1e\+300 at row 29000, column 3"):
        single.partial_fit(np.where((np.arange(30_000) == 29_000)[:, None] & (np.arange(32) == 3), 1e300, 0.5))


@pytest.mark.skipif(not NIGHTLY, reason="two minutes")
def test_ten_million_rows_in_a_call() -> None:
    rows = np.random.default_rng(6).normal(size=(10_000_000, 2)).astype(np.float32)
    model = StreamingKernelPCA(2, max_atoms=8, kernel=kernels.RBF(0.5)).fit(rows[:5000])
    peaks = {query: peak_of(lambda ask=ask: ask(model, rows)) for query, ask in QUERIES.items()}  # type: ignore[misc]
    new = StreamingKernelPCA(2, max_atoms=8)
    peaks["partial_fit"] = peak_of(lambda: new.partial_fit(rows))
    peaks["fit"] = peak_of(lambda: new.fit(rows))
    report("10^7 rows", peaks)
    assert max(peaks.values()) < 64 * MIB, peaks
