"""Reports of the commands: what a model has learned, how well scores find anomalies, and pictures."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import numpy.typing as npt

from streamkpca import StreamingKernelPCA
from streamkpca._core.files import SHARED, replace_file
from streamkpca.cli.console import print_facts
from streamkpca.cli.models import NOTES, Saved, check_target, n_learned
from streamkpca.cli.options import MONITOR_PARAMETERS
from streamkpca.kernels import Kernel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ENDINGS = (".png", ".svg", ".pdf")
# Variances below this share of the largest are rounding.
_ROUNDING = 1e-12


def model_facts(model: StreamingKernelPCA, columns: Sequence[str] = (), n_columns: int | None = None) -> dict[str, Any]:
    """Return what a fitted model has learned as JSON has it; rows have `n_columns`, by default all that it sees."""
    return {
        "rows": model.n_samples_seen_,
        "rows_rejected": model.n_rows_rejected_,
        "columns": n_columns or model.n_features_in_,
        "column_names": list(columns),
        "kernel": repr(model.kernel_),
        "atoms": model.n_atoms_,
        "moved_atoms": int(np.count_nonzero(model.atom_rows_ < 0)),
        "active_atoms": model.n_active_,
        "components": int(np.count_nonzero(model.eigenvalues_ > _ROUNDING * model.eigenvalues_.max(initial=0.0))),
        "total_weight": model.total_weight_,
        "noise_variance": model.noise_variance_,
        "unexplained_energy_ratio": model.unexplained_energy_ratio_,
        "drift_detected": model.drift_detected_,
        "last_drift_row": model.last_drift_row_,
        "eigenvalues": model.eigenvalues_.tolist(),
        "eigenvalue_bounds": model.eigenvalue_bounds_.tolist(),
        "explained_variance_ratio": model.explained_variance_ratio_.tolist(),
    }


def list_facts(saved: Saved) -> dict[str, Any]:
    """Return what is in the file of a model as JSON has it."""
    model, monitor, facts = saved.model, saved.monitor, {"rows": 0}
    if n_learned(model):
        facts = model_facts(model, saved.reading.columns, saved.n_columns)
    beside = saved.extra
    if isinstance(beside, dict):
        beside = {name: value for name, value in beside.items() if name != NOTES}
    parameters = model.get_params(deep=False)
    return facts | {
        "monitor": monitor and {name: getattr(monitor, name) for name in MONITOR_PARAMETERS},
        "learned_from": list(saved.places),
        "extra": beside,
        "parameters": {name: repr(one) if isinstance(one, Kernel) else one for name, one in parameters.items()},
    }


def show_model(facts: Mapping[str, Any], **more: Any) -> None:
    """Print what a model has learned, given as `model_facts` or `list_facts` return it, and `more` facts."""
    # The command leaves bad rows out before the model sees them: no count, unless the model has one from elsewhere.
    hidden = {"eigenvalues", "eigenvalue_bounds", *([] if facts.get("rows_rejected") else ["rows_rejected"])}
    print_facts("Learned", {name: fact for name, fact in facts.items() if name not in hidden} | more)


def auroc(labels: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Return the area under the ROC curve: how often an anomalous row (label not 0) scores above a healthy one.

    Ties count half; NaN unless both kinds occur.

    >>> auroc([0, 0, 1, 1], [1.0, 2.0, 2.0, 3.0])
    0.875
    """
    anomalous = np.asarray(labels) != 0
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    # Ties have the mean of their ranks.
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    n = int(anomalous.sum())
    n_pairs = n * (len(ranks) - n)
    return float((ranks[anomalous].sum() - n * (n + 1) / 2) / n_pairs) if n_pairs else float("nan")


def average_precision(labels: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Return the mean precision over all anomalous rows (label not 0), each at the threshold that just finds it.

    Rows of equal score are found together; NaN without any.

    >>> average_precision([1, 0, 1], [3.0, 2.0, 1.0])
    0.8333333333333333
    """
    anomalous = np.asarray(labels) != 0
    _, level = np.unique(-np.asarray(scores, dtype=np.float64), return_inverse=True)
    hits, found = np.cumsum(np.bincount(level, weights=anomalous)), np.cumsum(np.bincount(level))
    return float(np.diff(hits, prepend=0.0) @ (hits / found) / hits[-1]) if anomalous.any() else float("nan")


def check_picture(path: str, inputs: Sequence[str]) -> None:
    """Refuse, before the work begins, a picture in an unknown format or over an input."""
    if Path(path).suffix.lower() not in _ENDINGS:
        raise click.UsageError(f"{path}: pictures are written as {', '.join(_ENDINGS)}; end the name in one of these")
    check_target(path, inputs)


def write_picture(figure: "Figure", path: str) -> None:
    """Write a picture in the format of the name's ending; the file before stays if that fails."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=Path(path).suffix.lower().removeprefix("."), dpi=150)
    with replace_file(path, mode=SHARED) as file:
        file.write(drawn.getvalue())
