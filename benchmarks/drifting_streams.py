"""Does it find anomalies while the healthy rows drift?

SCAR's streams [1]_: tables of UCI whose rows shake ever more, with labelled anomalies; one pass, every row is scored
before it is learned. The monitor ranks rows by `rarity_so_far`, as no user accepts states. Areas under the ROC curve
over all rows, means over the streams. The streams were cut anew, with at most 30,000 rows. Published means over all of
SCAR's own streams: xStream 0.905, RRCF 0.963, isolation forests 0.968, INNEs 0.972.

* **half-space trees** are River's, on rows standardised by all rows of the stream.
* **window**: the distance to the 5th nearest of the 1,000 rows before a block of 200, standardised by these rows. It
  knows that the rows drift, and how fast.

.. [1] Y. Ma et al., "SCAR: scalable continual anomaly recognition", arXiv 2405.00704.
"""

from pathlib import Path

import numpy as np
from common import Array, Figures, find_files, make_table, run, standardise, time_call
from detection_metrics import auroc
from peers import choose_peers, find_neighbour

from streamkpca.monitoring import Monitor

N_STREAMS = {"whole": None, "quick": 3, "tiny": 1}
# Rows of the window that a simple peer compares with, and of the blocks that it judges.
WINDOW, BLOCK = 1000, 200


def measure(size: str, data: Path | None) -> Figures:
    """Watch every stream with a default monitor, and with River's half-space trees."""
    streams: Figures = {}
    peers = choose_peers("half-space trees")
    for path in find_files(data, "scar")[: N_STREAMS[size]]:
        with np.load(path) as file:
            rows, labels = file["X"].astype(float), file["y"] != 0
        seconds, record = time_call(Monitor().update, rows)
        found = {"Monitor": auroc(labels, record.rarity_so_far)}
        found |= {name: auroc(labels, score(standardise(rows, rows))[0]) for name, score in peers.items()}
        found["5th neighbour in a window"] = auroc(labels, _compare_with_window(rows))
        streams[path.stem] = {"area": found, "rows": len(rows), "seconds": seconds}
    if not streams:
        return {}
    names = list(next(iter(streams.values()))["area"])
    means = {name: float(np.mean([stream["area"][name] for stream in streams.values()])) for name in names}
    rate = sum(stream["rows"] for stream in streams.values()) / sum(stream["seconds"] for stream in streams.values())
    return {"n_streams": len(streams), "means": means, "rows_per_second": rate, "streams": streams}


def _compare_with_window(rows: Array) -> Array:
    """Score blocks of rows by the rows before them; the first block has the score 0."""
    scores = np.zeros(len(rows))
    for start in range(BLOCK, len(rows), BLOCK):
        known, block = rows[max(start - WINDOW, 0) : start], rows[start : start + BLOCK]
        _, score = find_neighbour(5)(standardise(known, known))
        scores[start : start + BLOCK] = score(standardise(block, known))
    return scores


def describe(figures: Figures) -> str:
    """Return the mean areas."""
    head = [f"{figures['n_streams']} streams", *figures["means"]]
    table = make_table(head, [["mean area", *(f"{value:.3f}" for value in figures["means"].values())]])
    return f"{table}\n\nThe monitor scores and learns {figures['rows_per_second']:,.0f} rows a second."


if __name__ == "__main__":
    run(measure, describe)
