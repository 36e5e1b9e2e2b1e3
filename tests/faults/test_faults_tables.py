"""Damaged files of every format: each is read, or refused in a line, in bounded memory and time."""

import bz2
import gzip
import io
import os
import resource
import signal
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from apart import FORKS, in_a_child
from pyarrow import feather, parquet

from streamkpca.tables import Asked, Table, TableError

N_CHANGES = 2000 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 60
# Memory beside that of the process, and seconds for one file.
MOST_BYTES, LONGEST = 600 * 2**20, 150
# What a refusal must not hold: words of libraries and of Python that tell the user nothing.
FOREIGN = ("object has no", "NoneType", "bad_alloc", "must be str", "Error(", "Traceback", "<class", "0x7f")
# Sizes that are claimed: none, one too many, as many as a small field holds, more than any memory.
CLAIMS = (0, 1, 127, 128, 255, 2**16, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
WAYS = [
    {},
    {"on_bad_rows": "skip", "missing": "marginal", "looks": True},
    {"time": ["t"], "on_bad_rows": "skip"},
]

pytestmark = [
    *FORKS,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is limited as Linux does"),
]


def made(write):
    sink = io.BytesIO()
    write(sink)
    return sink.getvalue()


def good_files():
    X, codes = np.arange(600.0).reshape(300, 2), pa.array([str(i % 3) for i in range(300)]).dictionary_encode()
    table = pa.table({"t": X[:, 0], "x": X[:, 1], "s": codes})
    text = "t,x,s\n" + "".join(f'{i},{i}.5,"a{i}"\n' for i in range(300))
    return {
        "csv": text.encode(),
        "jsonl": "".join(f'{{"t": {i}, "x": {i}.5, "s": "a"}}\n' for i in range(300)).encode(),
        "csv.gz": gzip.compress(text.encode()),
        "csv.bz2": bz2.compress(text.encode()),
        "csv.zst": pa.compress(text.encode(), "zstd", asbytes=True),
        "npy": made(lambda sink: np.save(sink, X)),
        "columns.npy": made(lambda sink: np.save(sink, np.asfortranarray(X))),
        "parquet": made(lambda sink: parquet.write_table(table, sink, row_group_size=100)),
        "arrow": made(lambda sink: feather.write_feather(table, sink, compression="lz4")),
    }


def damaged(good, rng):
    """Cut a file, and change some of its numbers: anywhere, and near its ends, which hold its structure."""
    yield b""
    yield from (good[:end] for end in range(1, len(good), max(1, len(good) // 12)))
    yield good + bytes(100)
    for i in range(N_CHANGES):
        size, value = (1, 2, 4, 8)[i % 4], int(rng.choice(CLAIMS))
        begin, end = ((0, len(good)), (0, 300), (len(good) - 600, len(good)))[i % 3]
        at = int(rng.integers(max(begin, 0), min(end, len(good))))
        yield good[:at] + (value % 2 ** (8 * size)).to_bytes(size, "little") + good[at + size :]


def bombs():
    """Yield small files that claim to be, or are, far larger than memory."""
    for shape in ((2**40, 1), (1, 2**40), (2**62, 2**62), (2**27, 2)):
        for order in (False, True):
            header = f"{{'descr': '<f8', 'fortran_order': {order}, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
            yield "a.npy", b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header + bytes(48)
    zeros = gzip.compress(bytes(2**26), 1)
    yield "a.csv.gz", zeros
    yield "a.csv.gz", gzip.compress(b"x\n" + b"1" * 2**26, 1)
    yield "a.jsonl.gz", gzip.compress(b'{"x": ' + b"[" * 2**26, 1)


def try_all(files, folder, first, report):
    """Read files, reporting each before it is tried, and what is wrong with it."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + MOST_BYTES, resource.RLIM_INFINITY))
    for number, (name, data) in enumerate(files[first:], first):
        (folder / name).write_bytes(data)
        report(f"tried {number} {name}")
        signal.alarm(LONGEST)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                for batch in Table(str(folder / name), Asked(**WAYS[number % len(WAYS)])).batches(1000):
                    assert len(batch.rows) == len(batch.numbers) > 0
                    assert not np.isinf(batch.numbers).any()
        except TableError as error:
            text = str(error)
            if "\n" in text or len(text) > 1000 or any(word in text for word in FOREIGN):
                report(f"wrong: {number} {name}: {text[:500]}")
        except BaseException as error:
            report(f"wrong: {number} {name}: {''.join(traceback.format_exception(error)[-2:])}")
    signal.alarm(0)


def check(files, folder):
    first, wrong = 0, []
    while first < len(files):
        code, lines = in_a_child(lambda report, first=first: try_all(files, folder, first, report))
        wrong += [line for line in lines if line.startswith("wrong")]
        if code == 0:
            break
        last = [line for line in lines if line.startswith("tried")][-1]
        wrong.append(f"wrong: the process ended with {code} at {last}")
        first = int(last.split()[1]) + 1
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.parametrize("name", good_files())
def test_damaged_files_are_read_or_refused_in_a_line(name, tmp_path):
    good, rng = good_files()[name], np.random.default_rng(31)
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    list(Table(str(tmp_path / "a.csv"), Asked()).batches(10))
    check([(f"table.{name}", data) for data in damaged(good, rng)], tmp_path)


def test_files_that_claim_to_be_larger_than_memory_are_refused(tmp_path):
    check(list(bombs()), tmp_path)
