"""Claim: text counts are learned in time and memory that follow the words of a text, not all words that there are.

Synthetic texts: words come by Zipf's law from topics that prefer some of them, and a row counts the words of a text.
The same rows are learned twice, in chunks: as scipy's CSR, and as dense arrays made of each chunk. A line gives rows
learned and scored a second, what the arrays of a model hold, and the largest relative difference of scores. Dense rows
of 100,000 columns are left out: their samples alone would take gigabytes.

Run::

    python benchmarks/sparse_rows_stay_sparse.py
    python benchmarks/sparse_rows_stay_sparse.py --tiny

The exit code is 0 if from 5,000 columns on sparse rows are learned and scored at least three times as fast, in a tenth
of the memory, with scores equal to 1e-10; and 1 otherwise.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import MEBIBYTE, state_bytes, surroundings, write_figures
from scipy.sparse import csr_array

from streamkpca import StreamingKernelPCA
from streamkpca.kernels import Cosine

COLUMNS, TINY_COLUMNS = (500, 5_000, 20_000, 100_000), (500, 3_000, 10_000)
MOST_DENSE_COLUMNS = 20_000
FROM_COLUMNS, LEAST_SPEED, MOST_MEMORY, MOST_DIFFERENCE = 5_000, 3.0, 0.1, 1e-10
N_TOPICS, N_WORDS, CHUNK = 20, 120, 512


def texts(n_rows: int, n_columns: int, seed: int = 0) -> csr_array:
    """Make counts of words (n_rows, n_columns), some 60 to 100 different ones a row."""
    random = np.random.default_rng(seed)
    shares = 1.0 / np.arange(1.0, n_columns + 1.0)
    orders = [random.permutation(n_columns) for _ in range(N_TOPICS)]
    common = np.cumsum(shares) / shares.sum()
    words = np.searchsorted(common, random.random((n_rows, N_WORDS)))
    topics = random.integers(N_TOPICS, size=n_rows)
    # Half of the words are the topic's own.
    for topic, order in enumerate(orders):
        mine = np.flatnonzero(topics == topic)
        words[mine, ::2] = order[words[mine, ::2]]
    indptr = np.arange(0, words.size + 1, N_WORDS)
    rows = csr_array((np.ones(words.size), words.ravel(), indptr), shape=(n_rows, n_columns))
    rows.sum_duplicates()
    return rows


def learn_and_score(rows: csr_array, new: csr_array, form: Callable[[csr_array], Any]) -> tuple[dict[str, float], Any]:
    """Learn and score rows in chunks, each in the form asked for."""
    model = StreamingKernelPCA(5, kernel=Cosine(), max_atoms=64, atoms="rows", random_state=0)
    start = time.perf_counter()
    for first in range(0, rows.shape[0], CHUNK):
        model.partial_fit(form(rows[first : first + CHUNK]))
    learned = time.perf_counter()
    scores = np.concatenate(
        [model.novelty(form(new[first : first + CHUNK])) for first in range(0, new.shape[0], CHUNK)]
    )
    scored = time.perf_counter()
    figures = {
        "learned_per_second": rows.shape[0] / (learned - start),
        "scored_per_second": new.shape[0] / (scored - learned),
        "bytes": float(state_bytes(model)),
    }
    return figures, scores


def measure(n_rows: int, n_columns: int) -> dict[str, Any]:
    """Compare both forms at one number of columns."""
    rows, new = texts(n_rows, n_columns), texts(2048, n_columns, seed=1)
    # Loops are compiled before anything counts.
    learn_and_score(rows[:CHUNK], new[:8], lambda chunk: chunk)
    sparse, scores = learn_and_score(rows, new, lambda chunk: chunk)
    found: dict[str, Any] = {"columns": n_columns, "words": float(rows.nnz / rows.shape[0]), "sparse": sparse}
    if n_columns <= MOST_DENSE_COLUMNS:
        dense, expected = learn_and_score(rows, new, lambda chunk: chunk.toarray())
        found |= {
            "dense": dense,
            "speed": min(sparse[name] / dense[name] for name in ("learned_per_second", "scored_per_second")),
            "memory": sparse["bytes"] / dense["bytes"],
            "difference": float(np.max(np.abs(scores - expected)) / np.abs(expected).max()),
        }
    return found


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Learn sparse rows as they are, and as dense ones.")
    parser.add_argument("--rows", type=int, default=8192, help="rows to learn (default 8192)")
    parser.add_argument("--tiny", action="store_true", help="1,024 rows of fewer columns")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    sizes, n_rows = (TINY_COLUMNS, 1024) if arguments.tiny else (COLUMNS, arguments.rows)
    where = surroundings()
    heads = ["columns", "words", "form", "learned/s", "scored/s", "MiB", "difference"]
    print(" ".join(f"{head:>11}" for head in heads))
    results, n_missed = [], 0
    for n_columns in sizes:
        found = measure(n_rows, n_columns)
        results.append(found)
        for form in ("sparse", "dense"):
            if form in found:
                figures = found[form]
                cells = [f"{n_columns:,}", f"{found['words']:.0f}", form]
                cells += [f"{figures[name]:,.0f}" for name in ("learned_per_second", "scored_per_second")]
                cells += [f"{figures['bytes'] / MEBIBYTE:.1f}", f"{found.get('difference', 0.0):.0e}"]
                print(" ".join(f"{cell:>11}" for cell in cells), flush=True)
        if "dense" in found:
            is_wide = n_columns >= FROM_COLUMNS
            n_missed += found["difference"] > MOST_DIFFERENCE
            n_missed += is_wide and (found["speed"] < LEAST_SPEED or found["memory"] > MOST_MEMORY)
    print("SPARSE: as promised" if not n_missed else f"DENSE: {n_missed} lines miss the claim")
    write_figures(arguments.json, where, {"sizes": results})
    return 0 if n_missed == 0 or arguments.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
