"""What the commands tell at the end: what was learned, and how novel rows were."""

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from streamkpca.command.detection import auroc, average_precision
from streamkpca.command.terminal import print_facts, print_table

if TYPE_CHECKING:
    from streamkpca.streaming import StreamingKernelPCA

Array = npt.NDArray[np.float64]


class Scores:
    """Novelty scores of a stream: the highest of them and, with labels, how well they find anomalies.

    Parameters
    ----------
    top : int
        How many of the most novel rows to remember.
    labelled : bool
        Whether every chunk brings labels; all scores are kept then.

    Attributes
    ----------
    n_rows : int
        Rows taken.
    """

    def __init__(self, top: int, *, labelled: bool) -> None:
        self.n_rows = 0
        self._top = top
        self._labelled = labelled
        self._rows = np.empty(0, dtype=np.int64)
        self._highest = np.empty(0)
        self._all: list[Array] = []
        self._labels: list[npt.NDArray[np.bool_]] = []
        self._sum = 0.0

    def take(self, novelty: Array, labels: Array | None) -> None:
        """Take in the next rows' scores.

        Parameters
        ----------
        novelty : ndarray of shape (n,)
            Scores.
        labels : ndarray of shape (n,), or None
            Anything but 0 is anomalous.
        """
        rows = np.concatenate((self._rows, np.arange(self.n_rows, self.n_rows + len(novelty))))
        scores = np.concatenate((self._highest, novelty))
        best = np.argsort(-scores, kind="stable")[: self._top]
        self._rows, self._highest = rows[best], scores[best]
        self._sum += float(novelty.sum())
        self.n_rows += len(novelty)
        if self._labelled and labels is not None:
            self._all.append(novelty)
            self._labels.append(labels != 0)

    def show(self, source: str) -> None:
        """Print what was found.

        Parameters
        ----------
        source : str
            What was scored.
        """
        facts = [("rows scored", f"{self.n_rows:,}")]
        if self.n_rows:
            facts.append(("mean novelty", f"{self._sum / self.n_rows:.4g}"))
        if self._all:
            labels, scores = np.concatenate(self._labels), np.concatenate(self._all)
            share = labels.mean()
            facts.append(("anomalous rows", f"{labels.sum():,} ({share:.2%})"))
            if 0 < share < 1:
                facts.append(("area under ROC curve", f"{auroc(labels, scores):.3f}"))
                facts.append(("average precision", f"{average_precision(labels, scores):.3f} (chance {share:.3f})"))
        print_facts(f"Novelty of {source}", facts)
        if len(self._rows):
            pairs = zip(self._rows, self._highest, strict=True)
            cells = [(f"{row}", f"{value:.4g}") for row, value in pairs]
            print_table("Most novel rows (counted from 0)", ("row", "novelty"), cells)


def show_model(model: "StreamingKernelPCA", seconds: float) -> None:
    """Print what a model has learned.

    Parameters
    ----------
    model : StreamingKernelPCA
        Fitted.
    seconds : float
        How long that took.
    """
    rows, limit = model.n_samples_seen_, model.max_atoms
    shares = model.explained_variance_ratio_
    print_facts(
        "Learned",
        [
            ("rows", f"{rows:,}"),
            ("columns", f"{model.atoms_.shape[1]}"),
            ("kernel", f"{model.kernel_}"),
            ("atoms", f"{model.n_atoms_}" + ("" if limit is None else f" of at most {limit}")),
            ("active atoms", f"{model.n_active_}"),
            ("variance explained", f"{shares.sum():.1%} by {len(shares)} components"),
            ("time", f"{seconds:.2f} s, {rows / max(seconds, 1e-9):,.0f} rows/s"),
        ],
    )
    cells = [
        (f"{i}", f"{value:.4g}", f"{share:.2%}", f"{total:.2%}")
        for i, (value, share, total) in enumerate(zip(model.eigenvalues_, shares, np.cumsum(shares), strict=True))
        if not math.isclose(value, 0.0, abs_tol=1e-300)
    ]
    print_table("Components", ("component", "variance", "explained", "together"), cells)
