"""What looks wrong, each in one line with its remedy."""

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca.cli.watch import written_shares
from streamkpca.kernels import Kernel
from streamkpca.kernels.base import InUnits
from streamkpca.kernels.equality import category_columns
from streamkpca.models.streaming import StreamingKernelPCA

Array = npt.NDArray[np.float64]

# Fewer learned rows leave the level that one row in a hundred exceeds to chance.
_ENOUGH_ROWS = 300
_MANY_ALARMS = 0.1
_SHOWN_NAMES = 8
_MOST_CHANGES = 5
# As the units "auto" decide: with variances v of d columns, (sum v)^2 / sum v^2 - 1 < .13 (d - 1).
_FEW_COUNT = 0.13
_NEARLY_ALL = 0.9
# Variances below this share of the largest are rounding.
_ROUNDING = 1e-12


class Spread:
    """Mean and variance of the numbers of each column, chunk by chunk; NaN are gaps."""

    def __init__(self) -> None:
        self.n_rows = 0
        self.mean: Array = np.empty(0)
        self._squares: Array = np.empty(0)
        self._counts: Array = np.empty(0)
        self._first: Array = np.empty(0)
        self._varies: npt.NDArray[np.bool_] = np.empty(0, dtype=bool)

    def add(self, rows: Array) -> None:
        """Add rows (n, d)."""
        if not len(rows):
            return
        d = rows.shape[1]
        if not self.n_rows:
            self._first = np.full(d, np.nan)
            self.mean, self._squares, self._counts = np.zeros(d), np.zeros(d), np.zeros(d)
            self._varies = np.zeros(d, dtype=bool)
        known = ~np.isnan(rows)
        first = rows[known.argmax(axis=0), np.arange(d)]
        self._first = np.where(np.isnan(self._first), first, self._first)
        # Numbers so large that squares overflow say nothing here.
        with np.errstate(all="ignore"):
            n = known.sum(axis=0)
            total = self._counts + n
            share = n / np.maximum(total, 1)
            mean = np.where(known, rows, 0.0).sum(axis=0) / np.maximum(n, 1)
            step = np.where(n > 0, mean - self.mean, 0.0)
            self._squares += np.where(known, (rows - mean) ** 2, 0.0).sum(axis=0) + step**2 * self._counts * share
            self.mean += step * share
        self._counts = total
        self.n_rows += len(rows)
        self._varies |= (known & (rows != self._first)).any(axis=0)

    @property
    def constant(self) -> list[int]:
        """Positions of the columns that do not vary."""
        return np.flatnonzero(~self._varies).tolist() if self.n_rows > 1 else []

    def dominating(self, ignored: Collection[int] = ()) -> tuple[int, float] | None:
        """Return the number of the few columns that make up nearly all distances, and their share; None if none do."""
        counts = self._varies.copy()
        counts[list(ignored)] = False
        with np.errstate(all="ignore"):
            variances = self._squares[counts] / self._counts[counts]
            shares = variances / variances.sum()
        if len(shares) < 2 or not np.isfinite(shares).all():
            return None
        if 1.0 / (shares**2).sum() - 1.0 >= _FEW_COUNT * (len(shares) - 1):
            return None
        total = np.cumsum(np.sort(shares)[::-1])
        n = int(np.searchsorted(total, _NEARLY_ALL)) + 1
        return (n, float(total[n - 1])) if n < len(shares) else None


def column_hints(spread: Spread, kernel: Kernel, names: list[str], source: str) -> list[str]:
    """Say which columns of a table that was learned count for nothing, or for too much."""
    hints = []
    constant = [names[i] for i in spread.constant]
    if constant and len(constant) < len(names):
        shown = ",".join(constant[:_SHOWN_NAMES]) + (",..." if len(constant) > _SHOWN_NAMES else "")
        hints.append(
            f"{source}: {len(constant)} of {len(names)} columns never vary, so any change in them will be novel; "
            f"leave out those that do not matter (--drop {shown})"
        )
    dominating = spread.dominating(category_columns(kernel, len(names)))
    if dominating and counts_as_given(kernel):
        n, share = dominating
        what = "makes" if n == 1 else "make"
        hints.append(f"{source}: {n} of {len(names)} columns {what} up {share:.0%} of all distances; try --units range")
    return hints


def component_hints(model: StreamingKernelPCA) -> list[str]:
    """Say why a model has no components, or fewer than were asked for."""
    n, n_rows = n_components(model), model.n_samples_seen_
    if n_rows == 1:
        return ["only 1 row was learned, too few for any component; learn more rows"]
    if not n:
        return [f"the {n_rows:,} rows that were learned do not vary, so there are no components"]
    wanted = model.n_components
    if isinstance(wanted, int) and n < wanted and n_rows <= wanted:
        return [
            f"only {n_rows:,} rows were learned, too few for {wanted} components; learn more rows, or ask for fewer "
            "(--components)"
        ]
    return []


def n_components(model: StreamingKernelPCA) -> int:
    """Count the components along which the learned rows vary, beyond rounding."""
    variances = np.asarray(model.eigenvalues_)
    return int(np.count_nonzero(variances > _ROUNDING * variances.max(initial=0.0)))


def counts_as_given(kernel: Kernel) -> bool:
    """Tell whether a settled kernel compares rows in the units in which they were given."""
    if isinstance(kernel, InUnits) and isinstance(kernel.units, tuple):
        return set(kernel.units) == {1.0}
    return not kernel.has_units


def score_hints(found: dict[str, Any], *, n_learned: int, quantile: float, learn: str) -> list[str]:
    """Say what looks wrong with the scores of a file, given as `Scores.facts` returns them."""
    hints = []
    n, n_alarms = found["rows"], found["alarms"] or 0
    if found["threshold"] is None and n:
        hints.append(
            f"only {n_learned:,} rows were learned, too few for a threshold, so there are no alarms; learn more"
        )
    elif n_learned < _ENOUGH_ROWS:
        hints.append(
            f"fewer than {_ENOUGH_ROWS} rows were learned ({n_learned:,}): the threshold is uncertain; learn more"
        )
    changes = found["changes"]
    hints += [change_hint(change, learn=learn) for change in changes[:_MOST_CHANGES]]
    if len(changes) > _MOST_CHANGES:
        hints.append(
            f"{len(changes) - _MOST_CHANGES:,} more lasting changes, the last since row {changes[-1]['first_row']:,}; "
            "rows differ too often for one model; learn longer, or raise --quantile"
        )
    if not found["changes"] and n_alarms > n * max(_MANY_ALARMS, 3.0 * (1.0 - quantile)):
        remedy = "raise --quantile" if learn == "all" else "if these rows are normal, learn them (--learn all)"
        hints.append(f"{n_alarms / n:.0%} of the rows are alarms; {remedy}")
    singles = sum(event["alarms"] == 1 for event in found["events"])
    if len(found["events"]) >= 20 and singles > 0.5 * len(found["events"]) and found["smoothing"] is None:
        hints.append(
            f"{singles:,} of {len(found['events']):,} events are single rows; if rows are in time order, "
            "--smoothing 0.3 keeps those that last"
        )
    return hints


def change_hint(change: dict[str, Any], *, learn: str) -> str:
    """Say since when rows have changed, and what became of them."""
    when = f" ({change['first_time']})" if "first_time" in change else ""
    most = f", most in {written_shares(change['features'])}" if change["features"] else ""
    if change["is_accepted"]:
        remedy = "it was learned as normal (--learn none keeps the model as it is)"
    elif learn == "none":
        remedy = "nothing was learned; --learn normal takes it for normal"
    else:
        remedy = "all rows were learned"
    return (
        f"a lasting change since row {change['first_row']:,}{when}: {change['share_of_alarms']:.0%} of the rows up to "
        f"{change['detected_row']:,} lie above the threshold{most}; {remedy}"
    )
