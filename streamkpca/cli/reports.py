"""What the commands report: what a model has learned, and how well scores find anomalies."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from streamkpca import StreamingKernelPCA
from streamkpca.cli.console import print_facts, print_table
from streamkpca.cli.models import NOTES, Saved
from streamkpca.cli.options import MONITOR_PARAMETERS
from streamkpca.kernels import Kernel

# Variances below this share of the largest are rounding.
_ROUNDING = 1e-12
_SHOWN_PLACES = 3


def model_facts(model: StreamingKernelPCA, columns: Sequence[str] = (), *, lags: int = 1) -> dict[str, Any]:
    """Return what a fitted model has learned as JSON has it."""
    return {
        "rows": model.n_samples_seen_,
        "rows_rejected": model.n_rows_rejected_,
        "columns": model.n_features_in_ // lags,
        "lags": lags,
        "column_names": list(columns) or None,
        "kernel": repr(model.kernel_),
        "atoms": model.n_atoms_,
        "moved_atoms": int(np.count_nonzero(model.atom_rows_ < 0)),
        "active_atoms": model.n_active_,
        "components": n_components(model),
        "total_weight": model.total_weight_,
        "noise_variance": model.noise_variance_,
        "eigenvalues": model.eigenvalues_.tolist(),
        "eigenvalue_bounds": model.eigenvalue_bounds_.tolist(),
        "explained_variance_ratio": model.explained_variance_ratio_.tolist(),
        "unexplained_energy_ratio": model.unexplained_energy_ratio_,
        "drift_detected": model.drift_detected_,
        "last_drift_row": model.last_drift_row_,
        "parameters": parameter_facts(model),
    }


def saved_facts(saved: Saved) -> dict[str, Any]:
    """Return what is in the file of a model as JSON has it."""
    monitor = saved.monitor
    facts = {"rows": 0, "parameters": parameter_facts(saved.model)}
    if saved.model.__sklearn_is_fitted__():
        facts = model_facts(saved.model, saved.columns, lags=monitor.lags if monitor else 1)
    return facts | {
        "monitor": monitor and {name: getattr(monitor, name) for name in MONITOR_PARAMETERS},
        "places": saved.places,
        "extra": saved.extra,
    }


def parameter_facts(model: StreamingKernelPCA) -> dict[str, Any]:
    """Return a model's parameters as JSON has them."""
    parameters = model.get_params(deep=False)
    return {name: repr(value) if isinstance(value, Kernel) else value for name, value in parameters.items()}


def n_components(model: StreamingKernelPCA) -> int:
    """Count the components along which the learned rows vary, beyond rounding."""
    variances = model.eigenvalues_
    return int(np.count_nonzero(variances > _ROUNDING * variances.max(initial=0.0)))


def show_model(facts: Mapping[str, Any], *, n_new: int | None = None) -> None:
    """Print what a model has learned, given as `model_facts` or `saved_facts` return it."""
    parameters, shares, n = facts["parameters"], facts["explained_variance_ratio"], facts["components"]
    limit, half_life = parameters["max_atoms"], parameters["half_life"]
    together = f", of {facts['lags']} rows together" if facts["lags"] > 1 else ""
    explained = f"{sum(shares[:n]):.1%} by {n} components" if n else "none, as the rows do not vary"
    beside = facts.get("extra")
    if isinstance(beside, dict):
        beside = {name: value for name, value in beside.items() if name != NOTES} or None
    shown = {
        "rows": f"{facts['rows']:,}" + ("" if n_new is None else f", {n_new:,} of them new"),
        "columns": f"{facts['columns']}{together}",
        "column names": facts["column_names"] and ", ".join(facts["column_names"]),
        "kernel": facts["kernel"],
        "atoms": f"{facts['atoms']}" + ("" if limit is None else f" of at most {limit}"),
        "active atoms": f"{facts['active_atoms']}",
        "variance explained": explained,
        "monitor": facts.get("monitor") and _written(facts["monitor"]),
        "half-life": half_life and f"{half_life:,.0f} rows",
        "last drift": facts["last_drift_row"] and f"after {facts['last_drift_row']:,} rows",
        "learned from": ", ".join(list(facts.get("places", {}))[-_SHOWN_PLACES:]),
        "saved beside it": None if beside is None else json.dumps(beside),
    }
    print_facts("Learned", [(name, value) for name, value in shown.items() if value])
    cells = [
        (f"{i}", f"{value:.4g}", f"{share:.2%}", f"{total:.2%}")
        for i, (value, share, total) in enumerate(zip(facts["eigenvalues"], shares, np.cumsum(shares), strict=True))
    ]
    if n:
        print_table("Components", ("component", "variance", "explained", "cumulative"), cells[:n])


def _written(parameters: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {str(value).lower()}" for name, value in parameters.items())


def auroc(labels: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Return the area under the ROC curve: how often an anomalous row scores above a healthy one.

    Labels (n,), anomalous where not 0; scores (n,). 1 is perfect, 0.5 is chance, and ties count half; NaN unless both
    kinds occur.

    Examples
    --------
    >>> auroc([0, 0, 1, 1], [1.0, 2.0, 2.0, 3.0])
    0.875
    """
    anomalous, ranks = np.asarray(labels) != 0, rankdata(scores)
    n = int(anomalous.sum())
    n_pairs = n * (len(ranks) - n)
    return float((ranks[anomalous].sum() - n * (n + 1) / 2) / n_pairs) if n_pairs else float("nan")


def average_precision(labels: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Return the mean precision over all anomalous rows, each at the threshold that just finds it.

    Labels (n,), anomalous where not 0; scores (n,). 1 is perfect, the share of anomalous rows is chance; NaN without
    any. Rows of equal score are found together.

    Examples
    --------
    >>> average_precision([1, 0, 1], [3.0, 2.0, 1.0])
    0.8333333333333333
    """
    anomalous = np.asarray(labels) != 0
    _, level = np.unique(-np.asarray(scores, dtype=np.float64), return_inverse=True)
    hits, found = np.cumsum(np.bincount(level, weights=anomalous)), np.cumsum(np.bincount(level))
    return float(np.diff(hits, prepend=0.0) @ (hits / found) / hits[-1]) if anomalous.any() else float("nan")
