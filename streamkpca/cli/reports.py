"""What the commands report: what a model has learned, how novel rows are, and how well novelty finds anomalies."""

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca.cli.console import print_facts, print_table
from streamkpca.cli.hints import n_components
from streamkpca.cli.models import NOTES, learned_columns, n_lags, n_passed, own_notes, saved_beside
from streamkpca.cli.tables import Chunk
from streamkpca.cli.watch import Found, Watcher, written_shares
from streamkpca.cli.wording import MONITOR_PARAMETERS
from streamkpca.kernels import Kernel
from streamkpca.kernels.base import InUnits
from streamkpca.kernels.views import UnitMatrix
from streamkpca.models.streaming import StreamingKernelPCA

Array = npt.NDArray[np.float64]

_SHOWN_NAMES = 8
_SHOWN_OFFSETS = 3


def auroc(labels: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Return the area under the ROC curve: how often an anomalous row scores above a healthy one.

    Labels (n,), anomalous where not 0; scores (n,), not NaN. 1 is perfect, 0.5 is chance; NaN unless both kinds occur.

    Notes
    -----
    The share of (anomalous, healthy) pairs that the score puts in order, ties counting half. O(n log n).

    Examples
    --------
    >>> auroc([0, 0, 1, 1], [1.0, 2.0, 2.0, 3.0])
    0.875
    """
    thresholds_hit, thresholds_false = _counts(labels, scores)
    hits, falses = thresholds_hit[-1], thresholds_false[-1]
    if hits == 0 or falses == 0:
        return float("nan")
    steps = np.diff(thresholds_false, prepend=0.0)
    heights = thresholds_hit - np.diff(thresholds_hit, prepend=0.0) / 2
    return float(steps @ heights / (hits * falses))


def average_precision(labels: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Return the mean precision over all anomalous rows, each at the threshold that just finds it.

    Labels (n,), anomalous where not 0; scores (n,), not NaN. 1 is perfect, the share of anomalous rows is chance; NaN
    without any.

    Notes
    -----
    sum_t (recall_t - recall_{t-1}) precision_t over the distinct scores t, from the highest down: rows of equal score
    are found together. O(n log n).

    Examples
    --------
    >>> average_precision([1, 0, 1], [3.0, 2.0, 1.0])
    0.8333333333333333
    """
    hits, falses = _counts(labels, scores)
    if hits[-1] == 0:
        return float("nan")
    return float(np.diff(hits, prepend=0.0) @ (hits / (hits + falses)) / hits[-1])


def _counts(labels: npt.ArrayLike, scores: npt.ArrayLike) -> tuple[Array, Array]:
    """Count anomalous and healthy rows at or above each distinct score, from the highest down."""
    anomalous, values = np.asarray(labels) != 0, np.asarray(scores, dtype=np.float64)
    if anomalous.ndim != 1 or anomalous.shape != values.shape or not len(values):
        raise ValueError(
            "expected one label and one score for each row but got shapes "
            f"{anomalous.shape} and {values.shape}; pass two vectors of the same length"
        )
    if np.isnan(values).any():
        raise ValueError("scores hold NaN, which cannot be ordered; leave out rows without a score")
    order = np.argsort(-values, kind="stable")
    last = np.flatnonzero(np.append(np.diff(values[order]) != 0, True))
    hits = np.cumsum(anomalous[order])[last].astype(np.float64)
    return hits, last + 1 - hits


class Scores:
    """Scores of a file: events, the `top` most novel rows, alarms, and how well scores find anomalies.

    All scores are kept where rows have labels.
    """

    def __init__(self, top: int, watcher: Watcher) -> None:
        self.n_rows = self.n_alarms = 0
        self.threshold: float | None = None
        self.watcher = watcher
        self._top = top
        self._highest: list[tuple[float, int, Any, list[dict[str, Any]]]] = []
        self._all: list[Array] = []
        self._labels: list[npt.NDArray[np.bool_]] = []
        self._mean = 0.0

    def take(self, chunk: Chunk, found: Found) -> list[dict[str, Any]]:
        """Add what was found about the next rows, and return the alarms among them; any label but 0 is anomalous."""
        record = found.record
        novelty, n = record.novelty, len(record.novelty)
        when = [None] * n if chunk.times is None else chunk.times
        best = np.argsort(-novelty, kind="stable")[: self._top].tolist()
        if len(self._highest) >= self._top:
            best = [i for i in best if novelty[i] > self._highest[-1][0]] if self._top else []
        # Rows that were learned are not novel to the model any more.
        explained = found.stacked[best] if self.watcher.monitor.learn != "all" else found.stacked[:0]
        features = self.watcher.shares(explained) or [[] for _ in best]
        self._highest += [
            (float(novelty[i]), self.n_rows + i, when[i], names) for i, names in zip(best, features, strict=True)
        ]
        self._highest = sorted(self._highest, key=lambda one: (-one[0], one[1]))[: self._top]
        alarms = [
            _score_line(self.n_rows + i, when[i], float(novelty[i])) | {"threshold": float(record.threshold[i])}
            for i in np.flatnonzero(record.is_alarm).tolist()
        ]
        self.n_rows += n
        if n:
            # The sum of scores can overflow.
            self._mean += float(((novelty - self._mean) / self.n_rows).sum())
            if np.isfinite(record.threshold[-1]):
                self.threshold = float(record.threshold[-1])
        self.n_alarms += len(alarms)
        if chunk.labels is not None:
            self._all.append(record.smoothed)
            self._labels.append(chunk.labels != 0)
        return alarms

    def facts(self) -> dict[str, Any]:
        """Return what was found as JSON has it."""
        found: dict[str, Any] = {
            **self.watcher.facts(),
            "most_novel": [
                _score_line(row, when, value) | {"features": features} for value, row, when, features in self._highest
            ],
            "rows": self.n_rows,
            "mean_novelty": self._mean if self.n_rows else None,
            "threshold": self.threshold,
            "alarms": None if self.threshold is None else self.n_alarms,
            "smoothing": self.watcher.monitor.smoothing,
            "lags": self.watcher.monitor.lags,
        }
        if self._all:
            labels, scores = np.concatenate(self._labels), np.concatenate(self._all)
            found["anomalous_rows"] = int(labels.sum())
            if 0 < labels.mean() < 1:
                found["area_under_roc_curve"] = auroc(labels, scores)
                found["average_precision"] = average_precision(labels, scores)
        return found

    def show(self, source: str) -> None:
        """Print what was found in the rows of `source`: events, the most novel rows, and a summary."""
        found = self.facts()
        _show_events(found["events"], found["number_of_events"], self._top)
        _show_rows(found["most_novel"])
        shown = [("rows scored", f"{self.n_rows:,}")]
        if self.n_rows:
            shown.append(("mean novelty", f"{found['mean_novelty']:.4g}"))
        if self.n_rows and self.threshold is None:
            shown.append(("alarms", "none, as there is no threshold yet"))
        elif self.n_rows:
            share, last = self.n_alarms / self.n_rows, f"above {self.threshold:.4g} at the end"
            n_events = found["number_of_events"]
            events = f"{n_events:,} event" + ("" if n_events == 1 else "s")
            shown.append(("alarms", f"{self.n_alarms:,} ({share:.2%}) in {events}, {last}"))
        for change in found["changes"]:
            when = f" ({change['first_time']})" if "first_time" in change else ""
            done = "learned" if change["is_accepted"] else "not accepted"
            shown.append(("lasting change", f"since row {change['first_row']:,}{when}; {done}"))
        if self._all:
            share = found["anomalous_rows"] / self.n_rows
            shown.append(("anomalous rows", f"{found['anomalous_rows']:,} ({share:.2%})"))
            if "average_precision" in found:
                shown.append(("area under ROC curve", f"{found['area_under_roc_curve']:.3f}"))
                shown.append(("average precision", f"{found['average_precision']:.3f} (chance {share:.3f})"))
        print_facts(f"Novelty of {source}", shown)


def _show_events(events: list[dict[str, Any]], n_events: int, most: int) -> None:
    """Print the largest events, those of many alarms and high peaks, in the order of rows."""
    largest = sorted(events, key=lambda event: -event["alarms"] * event["peak"])[:most]
    largest.sort(key=lambda event: event["first_row"])
    if not largest:
        return
    timed = any("first_time" in event for event in largest)
    cells = [
        [
            f"{event['first_row']}",
            f"{event['last_row']}" + (", open" if event["is_open"] else ""),
            *([str(event.get("first_time", "")), str(event.get("last_time", ""))] if timed else []),
            f"{event['alarms']}",
            f"{event['peak']:.4g}",
            f"{event['peak_row']}",
            written_shares(event["features"]),
        ]
        for event in largest
    ]
    header = ["from", "to", *(["from time", "to time"] if timed else []), "alarms", "peak", "at row", "most novel in"]
    which = "" if n_events == len(largest) else f": the largest {len(largest)} of {n_events:,}, by alarms times peak"
    print_table(f"Events{which} (rows counted from 0)", header, cells)


def _show_rows(lines: list[dict[str, Any]]) -> None:
    """Print the most novel rows."""
    if not lines:
        return
    named = any(line["features"] for line in lines)
    names = [name for name in ("row", "time", "novelty") if name in lines[0]]
    cells = [
        [f"{line[name]:.4g}" if name == "novelty" else str(line.get(name, "")) for name in names]
        + ([written_shares(line["features"])] if named else [])
        for line in lines
    ]
    print_table("Most novel rows (counted from 0)", [*names, *(["most novel in"] if named else [])], cells)


def _score_line(row: int, when: Any, novelty: float) -> dict[str, Any]:
    return {"row": row} | ({} if when is None else {"time": when}) | {"novelty": novelty}


def show_model(
    model: StreamingKernelPCA,
    seconds: float | None = None,
    *,
    n_new: int | None = None,
    note: str | None = None,
    lags: int | None = None,
) -> None:
    """Print what a fitted model has learned; `seconds` for the `n_new` rows learned now, by default all.

    The number of rows is followed by a `note`, by default how many are new. `lags` rows are scored together, by default
    as the monitor does that was saved with the model.
    """
    lags = n_lags(model) if lags is None else lags
    facts = model_facts(model)
    shares = facts["explained_variance_ratio"]
    limit = model.max_atoms
    n_new = facts["rows"] if n_new is None else n_new
    rows = f"{facts['rows']:,}"
    if note is None and n_new != facts["rows"]:
        note = f"{n_new:,} of them new"
    if note:
        rows += f", {note}"
    if facts["rows_rejected"]:
        rows += f", {facts['rows_rejected']:,} rejected"
    names = ", ".join((facts["column_names"] or [])[:_SHOWN_NAMES])
    if len(facts["column_names"] or []) > _SHOWN_NAMES:
        names += ", ..."
    shown = [
        ("rows", rows),
        ("columns", f"{facts['columns'] // lags}" + (f", of {lags} rows together" if lags > 1 else "")),
        *([("column names", names)] if names else []),
        ("kernel", _written_kernel(model.kernel_)),
        (
            "atoms",
            f"{facts['atoms']}"
            + ("" if limit is None else f" of at most {limit}")
            + (f", {facts['moved_atoms']} of them moved from their rows" if facts["moved_atoms"] else ""),
        ),
        ("active atoms", f"{facts['active_atoms']}"),
        ("variance explained", _written_variance(shares, n_components(model))),
    ]
    if facts["monitor"] is not None:
        shown.append(("monitor", _written_parameters(facts["monitor"])))
    if model.half_life is not None:
        shown.append(("half-life", f"{model.half_life:,.0f} rows"))
    if facts["last_drift_row"] is not None:
        shown.append(("last drift", f"after {facts['last_drift_row']:,} rows"))
    offsets = own_notes(model.extra_).get("places", {})
    for file, offset in list(offsets.items())[-_SHOWN_OFFSETS:]:
        unit = "line" if "line" in offset else "row"
        shown.append(("learned from", f"{file}, up to {unit} {n_passed(offset):,}"))
    beside = facts["extra"]
    if isinstance(beside, dict):
        beside = {name: value for name, value in beside.items() if name != NOTES} or None
    if beside is not None:
        shown.append(("saved beside it", json.dumps(beside)))
    if seconds is not None:
        shown.append(("time", f"{seconds:.2f} s, {n_new / max(seconds, 1e-9):,.0f} rows/s"))
    print_facts("Learned", shown)
    cells = [
        (f"{i}", f"{value:.4g}", f"{share:.2%}", f"{total:.2%}")
        for i, (value, share, total) in enumerate(zip(facts["eigenvalues"], shares, np.cumsum(shares), strict=True))
        if i < n_components(model)
    ]
    if cells:
        print_table("Components", ("component", "variance", "explained", "cumulative"), cells)


def _written_variance(shares: list[float], n: int) -> str:
    """Write the share of the variance that the components hold which there are."""
    if not n:
        return "none, as the rows do not vary"
    return f"{sum(shares[:n]):.1%} by {n} component" + ("" if n == 1 else "s")


def model_facts(model: StreamingKernelPCA) -> dict[str, Any]:
    """Return what a fitted model has learned as JSON has it."""
    return {
        "rows": model.n_samples_seen_,
        "rows_rejected": model.n_rows_rejected_,
        "columns": model.n_features_in_,
        "column_names": learned_columns(model),
        "kernel": repr(model.kernel_),
        "atoms": model.n_atoms_,
        "moved_atoms": int(np.count_nonzero(model.atom_rows_ < 0)),
        "active_atoms": model.n_active_,
        "total_weight": model.total_weight_,
        "noise_variance": model.noise_variance_,
        "eigenvalues": model.eigenvalues_.tolist(),
        "eigenvalue_bounds": model.eigenvalue_bounds_.tolist(),
        "explained_variance_ratio": model.explained_variance_ratio_.tolist(),
        "unexplained_energy_ratio": model.unexplained_energy_ratio_,
        "drift_detected": model.drift_detected_,
        "last_drift_row": model.last_drift_row_,
        "parameters": parameter_facts(model),
        "monitor": _monitor_parameters(model),
        "extra": saved_beside(model.extra_),
    }


def parameter_facts(model: StreamingKernelPCA) -> dict[str, Any]:
    """Return a model's parameters as JSON has them."""
    parameters = model.get_params(deep=False)
    return {name: repr(value) if isinstance(value, Kernel) else value for name, value in parameters.items()}


def _monitor_parameters(model: StreamingKernelPCA) -> dict[str, Any] | None:
    """Return the parameters of the monitor that was saved with a model, if one was."""
    extra = model.extra_
    monitor = extra.get("monitor") if isinstance(extra, dict) else None
    parameters = monitor.get("parameters") if isinstance(monitor, dict) else None
    return {name: parameters.get(name) for name in MONITOR_PARAMETERS} if isinstance(parameters, dict) else None


def _written_parameters(parameters: dict[str, Any]) -> str:
    words = ((name.replace("_", " "), "none" if value is None else value) for name, value in parameters.items())
    return ", ".join(f"{name} {value}" for name, value in words)


def _written_kernel(kernel: Kernel) -> str:
    """Write a kernel in a line that people can read: thousands of units say less than a few."""
    if isinstance(kernel, InUnits) and isinstance(kernel.units, UnitMatrix):
        return f"{kernel.kernel!r}, columns made uncorrelated"
    if isinstance(kernel, InUnits) and isinstance(kernel.units, tuple):
        if set(kernel.units) == {1.0}:
            return f"{kernel.kernel!r}, columns as they are"
        shown = ", ".join(f"{unit:.4g}" for unit in kernel.units[:_SHOWN_NAMES])
        more = ", ..." if len(kernel.units) > _SHOWN_NAMES else ""
        return f"{kernel.kernel!r}, columns in units of {shown}{more}"
    return repr(kernel)
