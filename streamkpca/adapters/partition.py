"""The work that engines share: functions of a partition, which is an array or a DataFrame of pandas.

They depend on their arguments alone and leave these as they are, so a lost result can be computed again, to the byte.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from streamkpca._core.arrays import Array, Flags
from streamkpca.aggregate import Aggregate
from streamkpca.models.streaming import StreamingKernelPCA, check_template
from streamkpca.rows.bad_rows import usable_rows

# Rows that settle the kernel's scale; all states begin with their atoms. After half as many, every later state took a
# quarter longer, as its own search had not come to rest; after more, it was no quicker.
FIRST_ROWS: Final = 10_240
# States merged in one task.
MERGED_TOGETHER: Final = 8


def begin(template: StreamingKernelPCA, first: Iterable[Any], weight_column: Any) -> Aggregate:
    """Return the empty state of a fit, which begins with the atoms of the template, or else of the first partitions."""
    check_template(template)
    if hasattr(template, "n_features_in_"):
        return Aggregate(template)
    model, n_rows = template.without_rows(), 0
    for part in first:
        rows, weights = split(first_rows(part, model, weight_column), weight_column)
        if len(rows):
            model.partial_fit(rows, sample_weight=weights)
        n_rows += len(rows)
        if n_rows >= FIRST_ROWS:
            break
    if not n_rows:
        raise ValueError(
            "found 0 rows to learn from; pass at least 1 finite row of positive weight among the first "
            f"{FIRST_ROWS:,}, or a template that has learned rows"
        )
    return Aggregate(model)


def first_rows(part: Any, model: StreamingKernelPCA, weight_column: Any) -> Any:
    """Return the first rows of a partition that a model would learn from."""
    rows, weights = split(part, weight_column)
    kept = select_answered(rows, model)
    return part[kept if weights is None else kept & (weights > 0.0)][:FIRST_ROWS]


def split(part: Any, weight_column: Any) -> tuple[Any, Any]:
    """Split a partition into rows and their weights, which are in a column of it, or None."""
    if weight_column is None:
        return part, None
    if isinstance(part, np.ndarray):
        return np.delete(part, weight_column, axis=1), part[:, weight_column]
    return part.drop(columns=weight_column), part[weight_column].to_numpy(dtype=np.float64, na_value=np.nan)


def learn(empty: Aggregate, part: Any, weight_column: Any = None) -> Aggregate:
    """Return the state of the rows of a partition."""
    return empty.zero().add(*split(part, weight_column))


def merge(states: Sequence[Aggregate]) -> Aggregate:
    """Return the state of all rows of states, in their order."""
    return states[0].zero().merge(*states)


def select_answered(rows: Any, model: Any) -> Flags:
    """Tell which rows (n, d) a model is asked about: not those that it leaves out when it learns."""
    missing = getattr(model, "missing", "raise")
    if missing == "raise":
        return np.ones(len(rows), dtype=bool)
    values = rows.to_numpy(dtype=np.float64, na_value=np.nan) if hasattr(rows, "columns") else rows
    return usable_rows(values, gaps=missing == "marginal")


def answer_names(model: Any) -> list[str]:
    """Return the names of the answers to a row: its novelty, and its projection on each axis."""
    return ["novelty", *model.get_feature_names_out().tolist()]


def answers(rows: Any, model: Any) -> Array:
    """Return the novelty and the projections of rows; NaN for rows that the model leaves out when it learns."""
    found = np.full((len(rows), len(answer_names(model))), np.nan)
    asked = select_answered(rows, model)
    if asked.any():
        found[asked, 0] = model.novelty(rows[asked])
        found[asked, 1:] = np.asarray(model.transform(rows[asked]))
    return found


def answer(table: Any, model: Any, features: list[str], keep: Sequence[str] = ()) -> Any:
    """Return some columns of a DataFrame with the answers to its rows beside them."""
    found = answers(table[features], model).T
    return table[list(keep)].assign(**dict(zip(answer_names(model), found, strict=True)))


def features_of(model: Any, columns: Iterable[str], keep: Sequence[str], named: Sequence[str]) -> list[str]:
    """Return the columns that are features: those that the model names, or else all but those to keep.

    `named` are the names of the answers, which no kept column may have.
    """
    given = list(columns)
    known = hasattr(model, "feature_names_in_")
    names = model.feature_names_in_.tolist() if known else [name for name in given if name not in keep]
    if missing := [name for name in (*names, *keep) if name not in given]:
        raise ValueError(
            f"expected the column {missing[0]} but got {', '.join(map(str, given))}; check the name, or add it"
        )
    if taken := [name for name in keep if name in named]:
        raise ValueError(f"the columns {', '.join(taken)} are named like answers; rename them")
    if not names:
        raise ValueError("found no columns that are features; select at least 1 column of numbers")
    if len(names) != (expected := getattr(model, "n_features_in_", len(names))):
        raise ValueError(
            f"expected {expected} features but got {len(names)} columns: {', '.join(names)}; select the "
            "features, and keep the other columns"
        )
    return names
