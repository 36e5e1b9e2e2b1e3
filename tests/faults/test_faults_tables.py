"""Files of every format that make no sense inside: each is read, or refused in a line, in bounded memory and time.

HYPOTHESIS_PROFILE=nightly reads each of some 20,000 files in thirteen ways.
"""

import itertools
import os
import re
import resource
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from apart import in_a_child
from hostile_tables import (
    arrow_files,
    compressed_files,
    csv_files,
    json_files,
    npy,
    npy_files,
    npz_files,
    parquet_files,
)

from streamkpca.cli.tables import TableError, open_table

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
# Every n-th pair of a file and a way is tried.
EVERY = 1 if NIGHTLY else 60
N_CHANGES = 300 if NIGHTLY else 20
# Length of what is far larger than it seems.
N_BITS = 28 if NIGHTLY else 24
# Memory beside that of the process, which reading takes for any file: blocks of the formats, decompressors, parsers.
MOST_BYTES = 600 * 2**20
LONGEST = 60

WAYS: list[dict[str, Any]] = [
    {},
    {"on_bad_rows": "skip"},
    {"time": "0"},
    {"labels": "-1"},
    {"columns": ["0"]},
    {"piped": True},
    {"header": True},
    {"header": False},
    {"array": "a"},
    {"learned": ["a", "b"]},
    {"time": "t", "labels": "t", "on_bad_rows": "skip"},
    {"piped": True, "on_bad_rows": "skip", "time": "0", "columns": ["0", "1"]},
    {"drop": ["0"]},
]
# What a refusal must not hold: words of libraries and of Python that tell the user nothing.
FOREIGN = ("object has no", "NoneType", "bad_alloc", "not supported between", "must be str", "Error(", "Traceback",
           "allow_pickle", "<class", "0x7f")  # fmt: skip

FORMATS: dict[str, Callable[[], Iterator[tuple[str, bytes]]]] = {
    "npy": npy_files,
    "npz": lambda: npz_files(N_BITS),
    "JSON lines": json_files,
    "CSV": csv_files,
    "compressed": lambda: compressed_files(N_BITS),
    "Parquet": lambda: parquet_files(N_CHANGES),
    "Arrow": lambda: arrow_files(N_CHANGES),
}

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning"),
]


def read(path: Path, way: dict[str, Any]) -> int:
    """Read a file as the command does, and count its rows."""
    options = {name: value for name, value in way.items() if name != "piped"}
    n_rows = 0
    with path.open("rb") as stream:
        table = open_table(str(path), stream=stream if "piped" in way else None, **options)
        for chunk in table.chunks(1000):
            assert chunk.rows.ndim == 2
            assert chunk.rows.dtype == np.float64
            assert np.isfinite(chunk.rows).all()
            assert len(chunk.rows)
            assert chunk.labels is None or np.isfinite(chunk.labels).all()
            assert chunk.times is None or len(chunk.times) == len(chunk.rows)
            n_rows += len(chunk.rows)
    return n_rows


def try_all(files: list[tuple[str, bytes]], folder: Path, first: int, report: Callable[[str], None]) -> None:
    """Read files in several ways, and report each way before it is tried, and what is wrong with it."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + MOST_BYTES, resource.RLIM_INFINITY))
    path = folder / "file"
    for number, (what, data) in enumerate(files[first:], first):
        ways = [way for k, way in enumerate(WAYS) if (number * 7 + k) % EVERY == 0]
        if not ways:
            continue
        path.write_bytes(data)
        for way in ways:
            report(f"tried {number} {what[:80]!r} {way}")
            signal.alarm(LONGEST)
            start = time.perf_counter()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    read(path, way)
                report("read")
            except TableError as error:
                text = str(error)
                # pyarrow asks for as much memory as a file claims to need, but uses only what there are bytes for.
                greedy = "more memory than there is" in text and "Arrow" not in what and "Parquet" not in what
                if "\n" in text or len(text) > 1000 or greedy or any(word in text for word in FOREIGN):
                    report(f"wrong: {what[:80]!r} {way}: {text[:500]}")
                report("refused")
            except BaseException as error:
                report(f"wrong: {what[:80]!r} {way}: {''.join(traceback.format_exception(error)[-2:])}")
            if time.perf_counter() - start > LONGEST / 4:
                report(f"wrong: {what[:80]!r} {way}: took {time.perf_counter() - start:.0f} s")
    signal.alarm(0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is measured by /proc")
@pytest.mark.parametrize("name", FORMATS)
def test_hostile_files_are_read_or_refused_in_a_line(name: str, tmp_path: Path) -> None:
    # Imported and warm before the memory is limited.
    (tmp_path / "warm").write_bytes(b"a,b\n1,2\n")
    read(tmp_path / "warm", {})
    import pyarrow.parquet  # noqa: F401

    files, outcomes, wrong, first = list(FORMATS[name]()), Counter[str](), [], 0
    while first < len(files):
        code, lines = in_a_child(lambda report, first=first: try_all(files, tmp_path, first, report))
        outcomes.update(line.partition(" ")[0] for line in lines)
        wrong += [line for line in lines if line.startswith("wrong")]
        if code == 0:
            break
        last = [line for line in lines if line.startswith("tried")][-1]
        wrong.append(f"wrong: the process ended with {code} at {last}")
        first = int(last.split()[1]) + 1
    print(
        f"{name}: {len(files)} files, {outcomes['tried']} readings: {outcomes['read']} read, {outcomes['refused']} "
        f"refused, {len(wrong)} wrong"
    )
    assert not wrong, "\n".join(wrong[:20])


def test_arrays_that_numpy_reads_are_read_alike(tmp_path: Path) -> None:
    """Whatever the header looks like: what numpy itself reads as a table of numbers is the oracle."""
    outcomes, path = Counter[str](), tmp_path / "a.npy"
    for what, data in npy_files():
        # An array whose elements are arrays has more axes than its header says.
        if what.startswith(("type '3f8'", "type '(2,)", "type ('<f8', (2")):
            continue
        path.write_bytes(data)
        expected: Any = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = np.load(path, allow_pickle=False)
            except Exception:
                outcomes["numpy refuses"] += 1
            usable = (
                expected is not None
                and expected.ndim == 2
                and expected.size
                and expected.dtype.kind in "fiub"
                and np.isfinite(expected.astype(np.float64)).all()
            )
        try:
            rows = np.concatenate([chunk.rows for chunk in open_table(str(path)).chunks(2)])
        except TableError:
            assert not usable or True in expected.shape
            outcomes["refused"] += 1
        else:
            assert usable
            np.testing.assert_array_equal(rows, expected.astype(np.float64))
            outcomes["read alike"] += 1
    print(f"npy: {dict(outcomes)}")


MANY = 100_000 if NIGHTLY else 30_000
NAMES, ROW = [f"c{j}" for j in range(MANY)], [f"{j}.5" for j in range(MANY)]
# The lines before the rows, and a row.
WIDE: dict[str, Callable[[], tuple[str, str]]] = {
    "CSV": lambda: (",".join(NAMES) + "\n", ",".join(ROW)),
    "CSV, quoted fields": lambda: (",".join(NAMES) + "\n", ",".join([f'"{ROW[0]}"', *ROW[1:]])),
    "CSV, marks within fields": lambda: (",".join(NAMES) + "\n", ",".join(['"0".5', *ROW[1:]])),
    "JSON objects": lambda: ("", "{" + ",".join(f'"c{j}":{j}.5' for j in range(MANY)) + "}"),
    "JSON arrays": lambda: ("", "[" + ",".join(ROW) + "]"),
}


def most_resident() -> int:
    """Return the most memory that the process has held, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is measured by /proc")
@pytest.mark.parametrize("kind", WIDE)
def test_a_row_of_many_columns_is_read_in_the_memory_that_it_takes(tmp_path: Path, kind: str) -> None:
    """Columns by name among 100,000 are found at once, and text of so many is parsed without a builder for each."""
    learned = [] if kind == "JSON arrays" else NAMES[::-1]
    expected = np.arange(MANY)[:: -1 if learned else 1] + 0.5
    before, row = WIDE[kind]()
    (tmp_path / "wide").write_text(before + f"{row}\n" * 3)
    (tmp_path / "small").write_text('{"a": 1}' if kind == "JSON objects" else 'a,b\n1,"2"')

    def act(report: Callable[[str], None]) -> None:
        read(tmp_path / "small", {})
        # Sets the most memory that the process has held to what it holds now.
        Path("/proc/self/clear_refs").write_text("5")
        held = most_resident()
        rows = [chunk.rows for chunk in open_table(str(tmp_path / "wide"), learned=learned).chunks(10)]
        report(str(most_resident() - held))
        np.testing.assert_array_equal(np.concatenate(rows), np.tile(expected, (3, 1)))

    code, lines = in_a_child(act)
    assert code == 0
    print(f"{kind}: {int(lines[0]) / MANY:.0f} bytes a column")
    assert int(lines[0]) < 10 * 2**20 + 1000 * MANY


def test_the_last_of_many_columns_may_be_that_of_labels(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(("[" + ",".join(ROW) + "]\n") * 2)
    chunks = list(open_table(str(tmp_path / "a.jsonl"), labels="-1").chunks(10))
    assert np.concatenate([chunk.labels for chunk in chunks if chunk.labels is not None]).tolist() == [MANY - 0.5] * 2


@pytest.mark.parametrize("claim", [2**21, 2**40, 10**30])
def test_more_columns_than_any_table_has_are_refused_before_they_are_named(tmp_path: Path, claim: int) -> None:
    path = tmp_path / "a.npy"
    for shape, order in itertools.product([(2, claim), (0, claim)], [False, True]):
        path.write_bytes(npy(shape, "|u1", order, data=b"12"))
        with path.open("rb") as stream, pytest.raises(TableError, match="columns, but at most 1,048,576 are read"):
            open_table("a.npy", stream=stream)
