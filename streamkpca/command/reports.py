"""What the commands tell at the end: what was learned, and how novel rows were."""

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamkpca.command.detection import auroc, average_precision
from streamkpca.command.terminal import print_facts, print_table
from streamkpca.kernels import Kernel

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

    def facts(self) -> dict[str, Any]:
        """Gather what was found, of what JSON knows.

        Returns
        -------
        dict
        """
        found: dict[str, Any] = {
            "rows": self.n_rows,
            "mean_novelty": self._sum / self.n_rows if self.n_rows else None,
            "most_novel": [
                {"row": int(row), "novelty": float(value)} for row, value in zip(self._rows, self._highest, strict=True)
            ],
        }
        if self._all:
            labels, scores = np.concatenate(self._labels), np.concatenate(self._all)
            found["anomalous_rows"] = int(labels.sum())
            if 0 < labels.mean() < 1:
                found["area_under_roc_curve"] = auroc(labels, scores)
                found["average_precision"] = average_precision(labels, scores)
        return found

    def show(self, source: str) -> None:
        """Print what was found.

        Parameters
        ----------
        source : str
            What was scored.
        """
        found = self.facts()
        shown = [("rows scored", f"{self.n_rows:,}")]
        if self.n_rows:
            shown.append(("mean novelty", f"{found['mean_novelty']:.4g}"))
        if self._all:
            share = found["anomalous_rows"] / self.n_rows
            shown.append(("anomalous rows", f"{found['anomalous_rows']:,} ({share:.2%})"))
            if "average_precision" in found:
                shown.append(("area under ROC curve", f"{found['area_under_roc_curve']:.3f}"))
                shown.append(("average precision", f"{found['average_precision']:.3f} (chance {share:.3f})"))
        print_facts(f"Novelty of {source}", shown)
        cells = [(f"{line['row']}", f"{line['novelty']:.4g}") for line in found["most_novel"]]
        if cells:
            print_table("Most novel rows (counted from 0)", ("row", "novelty"), cells)


def show_model(model: "StreamingKernelPCA", seconds: float | None = None) -> None:
    """Print what a model has learned.

    Parameters
    ----------
    model : StreamingKernelPCA
        Fitted.
    seconds : float, optional
        How long that took.
    """
    facts = model_facts(model)
    shares = facts["explained_variance_ratio"]
    limit = model.max_atoms
    shown = [
        ("rows", f"{facts['rows']:,}" + (f", {facts['rows_rejected']:,} rejected" if facts["rows_rejected"] else "")),
        ("columns", f"{facts['columns']}"),
        ("kernel", facts["kernel"]),
        ("atoms", f"{facts['atoms']}" + ("" if limit is None else f" of at most {limit}")),
        ("active atoms", f"{facts['active_atoms']}"),
        ("variance explained", f"{sum(shares):.1%} by {len(shares)} components"),
    ]
    if model.half_life is not None:
        shown.append(("half-life", f"{model.half_life:,.0f} rows"))
    if facts["last_drift_row"] is not None:
        shown.append(("last drift", f"after {facts['last_drift_row']:,} rows"))
    if facts["extra"] is not None:
        shown.append(("saved beside it", json.dumps(facts["extra"])))
    if seconds is not None:
        shown.append(("time", f"{seconds:.2f} s, {facts['rows'] / max(seconds, 1e-9):,.0f} rows/s"))
    print_facts("Learned", shown)
    cells = [
        (f"{i}", f"{value:.4g}", f"{share:.2%}", f"{total:.2%}")
        for i, (value, share, total) in enumerate(zip(facts["eigenvalues"], shares, np.cumsum(shares), strict=True))
        if not math.isclose(value, 0.0, abs_tol=1e-300)
    ]
    print_table("Components", ("component", "variance", "explained", "together"), cells)


def model_facts(model: "StreamingKernelPCA") -> dict[str, Any]:
    """Gather what a model has learned, of what JSON knows.

    Parameters
    ----------
    model : StreamingKernelPCA
        Fitted.

    Returns
    -------
    dict
    """
    names = getattr(model, "feature_names_in_", None)
    return {
        "rows": model.n_samples_seen_,
        "rows_rejected": model.n_rows_rejected_,
        "columns": model.n_features_in_,
        "column_names": None if names is None else list(names),
        "kernel": repr(model.kernel_),
        "atoms": model.n_atoms_,
        "active_atoms": model.n_active_,
        "total_weight": model.total_weight_,
        "noise_variance": model.noise_variance_,
        "eigenvalues": model.eigenvalues_.tolist(),
        "eigenvalue_bounds": model.eigenvalue_bounds_.tolist(),
        "explained_variance_ratio": model.explained_variance_ratio_.tolist(),
        "unexplained_energy_ratio": model.unexplained_energy_ratio_,
        "drift_detected": model.drift_detected_,
        "last_drift_row": model.last_drift_row_,
        "parameters": {
            name: repr(value) if isinstance(value, Kernel) else value
            for name, value in model.get_params(deep=False).items()
        },
        "extra": model.extra_,
    }
