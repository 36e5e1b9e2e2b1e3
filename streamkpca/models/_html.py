"""What estimators show in notebooks: what they have learned, and their parameters."""

from typing import Any

import numpy as np

from streamkpca._core.html import bars, escaped, folded, page, rows_of, table_of
from streamkpca.models._params import changed_parameters

_SHOWN_NAMES = 8


def estimator_page(estimator: Any) -> str:
    """Return the HTML of an estimator; whatever it cannot answer is left out, as showing it must never fail."""
    title = type(estimator).__name__
    if not estimator.__sklearn_is_fitted__():
        return page(title, "not fitted", _parameters(estimator))
    try:
        facts, shares = learned_facts(estimator), estimator.explained_variance_ratio_
    # A kernel of the caller, or rows so large that there are no axes.
    except Exception as error:
        return page(title, "fitted", rows_of([("cannot answer", str(error))]), _parameters(estimator))
    spectrum = bars(shares, "share of the variance along each axis")
    return page(title, f"fitted to {_count_of_rows(estimator)}", rows_of(facts), spectrum, _parameters(estimator))


def learned_facts(estimator: Any) -> list[tuple[str, str]]:
    """Return what a fitted estimator has learned, as names and values."""
    facts = [("features", _features(estimator)), ("kernel", repr(estimator.kernel_)), ("atoms", _atoms(estimator))]
    shares = estimator.explained_variance_ratio_
    facts.append(("variance explained", f"{np.sum(shares):.1%} by {len(shares)} axes"))
    if hasattr(estimator, "unexplained_energy_ratio_"):
        facts.append(("energy outside the atoms' span", f"{estimator.unexplained_energy_ratio_:.2%}"))
    if getattr(estimator, "n_rows_rejected_", 0):
        facts.append(("rows rejected", f"{estimator.n_rows_rejected_:,}"))
    if hasattr(estimator, "last_drift_row_"):
        facts.append(("drift", _drift(estimator)))
    return facts


def _count_of_rows(estimator: Any) -> str:
    if hasattr(estimator, "n_samples_seen_"):
        return f"{estimator.n_samples_seen_:,} rows"
    return f"rows of weight {estimator.total_weight_:,.6g}"


def _features(estimator: Any) -> str:
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return f"{estimator.n_features_in_:,}"
    shown = ", ".join(names[:_SHOWN_NAMES]) + (", ..." if len(names) > _SHOWN_NAMES else "")
    return f"{estimator.n_features_in_:,}: {shown}"


def _atoms(estimator: Any) -> str:
    if not hasattr(estimator, "n_active_"):
        return f"{estimator.n_atoms_:,}, all rows"
    return f"{estimator.n_atoms_:,}, {estimator.n_active_:,} of them active"


def _drift(estimator: Any) -> str:
    row = estimator.last_drift_row_
    if row is None:
        return f"none (trend {estimator.residual_trend_:.2f}; 1 signals a drift)"
    return f"signalled at row {row:,}" + (", and going on" if estimator.drift_detected_ else "")


def _parameters(estimator: Any) -> str:
    """Return a table of the parameters, those that differ from the defaults in bold."""
    changed = changed_parameters(estimator)

    def cell(text: str, name: str) -> str:
        return f"<td><b>{escaped(text)}</b></td>" if name in changed else f"<td>{escaped(text)}</td>"

    lines = "".join(
        f"<tr>{cell(name, name)}{cell(repr(value), name)}</tr>"
        for name, value in estimator.get_params(deep=False).items()
    )
    n_changed = f"{len(changed)} changed" if changed else "all as by default"
    return folded(f"parameters ({n_changed})", table_of(lines))
