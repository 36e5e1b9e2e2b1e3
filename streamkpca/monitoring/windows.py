"""Context of several lengths: statistics of the last rows, a model of them for each length, and one score of all."""

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.parameters import check_integer
from streamkpca.kernels import RBF, Kernel
from streamkpca.models.streaming import StreamingKernelPCA
from streamkpca.monitoring.causes import Cause, EventRows, causes_of
from streamkpca.monitoring.thresholds import healthy_level
from streamkpca.rows._loops import window_statistics
from streamkpca.rows.validation import rows_with_numbers
from streamkpca.stream.calibration import calibrate
from streamkpca.stream.state import State, answering, check_range

Array = npt.NDArray[np.float64]
States = tuple[State | None, ...]

STATISTICS = ("mean", "standard deviation", "range")
# Up to three rows are taken as they are: they are no more numbers than their statistics.
_AS_THEY_ARE = len(STATISTICS)
_AUTO, _LONGEST, _MOST = (1, 16, 64), 4096, 8
# A length counts when this many times its rows are learned, and at least so many: runs of left-out neighbours are an
# eighth of them, and must be longer than the windows, which overlap.
_ROWS_FOR_ONE, _FEWEST = 32, 512
# Levels of healthy scores from which their tail is extrapolated.
_UPPER, _FAR = 0.85, 0.97
_UPPER_RARITY = -math.log(1.0 - _UPPER)
# Largest index of the tail, for rows: slopes that are found anew would else make scores of different times differ.
_MOST_SURE = 10.0
# Power of the share of healthy rows that is a score. Smoothed, its inverse would be that of the rarest row alone.
_POWER = 0.25
# Rows that are rarer than this among healthy ones stay out of windows: they end with the event, not w rows later.
_RARE = 0.01
# Logarithms of scores from here on are rounding. Equal scores would make every other one infinitely rare.
_LEAST, _LEAST_SLOPE, _LARGEST_LOGARITHM = 1e-12, 0.1, 300.0


def checked_lengths(windows: Any, lags: int, where: str) -> tuple[int, ...]:
    """Return the lengths that `windows` asks for beside rows with lags, ascending."""
    if windows is None:
        return ()
    if isinstance(windows, str) and windows == "auto":
        return tuple(length for length in _AUTO if length > _AS_THEY_ARE or length < lags)
    if isinstance(windows, (str, bytes)) or not np.iterable(windows):
        raise TypeError(f"{where} expected windows to be 'auto' or lengths in rows, such as (16, 64), got {windows!r}")
    lengths = sorted(check_integer("a length of windows", w, least=1, most=_LONGEST, where=where) for w in windows)
    if len(lengths) > _MOST or len(set(lengths)) < len(lengths):
        raise ValueError(f"{where} expected at most {_MOST} different lengths of windows but got {lengths}")
    if any(lags <= length <= _AS_THEY_ARE for length in lengths):
        raise ValueError(
            f"{where} expected windows of {_AS_THEY_ARE + 1} rows or more, or shorter than lags={lags}, but got "
            f"{lengths}; set lags=3 to score three rows together"
        )
    return tuple(lengths)


def windows_width(n_features: int, lengths: Sequence[int]) -> int:
    """Return how many numbers windows of some lengths make of features."""
    return n_features * sum(min(length, _AS_THEY_ARE) for length in lengths)


def n_scales(lengths: Sequence[int]) -> int:
    """Return how many models are compared: that of the rows and one for each length, if there is one."""
    return 1 + len(lengths) if lengths else 0


class WindowState(NamedTuple):
    """The rows that windows to come hold, and the scales of scores; a value.

    `kept` (k, d) are the latest of the `n_kept` rows since the last gap that are not rare. `scales` (1 + K, 3) are
    those of the rows' model and of the lengths: see `_rarity`; NaN for those that do not count yet. Without lengths
    both are empty.
    """

    kept: Array
    n_kept: int
    scales: Array

    def cleared(self) -> Self:
        """Begin all windows anew."""
        return self._replace(kept=self.kept[:0], n_kept=0)


class Windows:
    """Models of the statistics of the last rows, one for each length, beside the model of the rows; or no lengths.

    Notes
    -----
    Windows of up to three rows, which are less than the lags, are these rows, the latest first, and longer ones their
    statistics. The rarity of a score is minus the logarithm of the share of healthy rows above it, which no model had
    learned. Rarities of all models make their root mean square, and a score is the exponential of a fourth of it: the
    share of equally rare healthy rows to the power -1/4. Rarities, and not the novelty of one model, are smoothed and
    compared, as scales of novelty change with what is learned.

    Beyond the .85 quantile u, logarithms of healthy scores have an exponential tail whose slope was estimated, so that
    the rarity of a score z slopes above u is that of Lomax's distribution, -log .15 + m log(1 + z / m) [1]_. For rows,
    m is the number of scores above u, up to 10. Windows overlap, and healthy stretches to come differ by more than
    those seen: there m is 1, whatever the length. With m in proportion to the windows that do not overlap, remnants of
    past faults in long windows outweighed faults in rows.

    All models count alike. Slopes that know how levels wander between blocks of healthy rows, or from maxima of blocks,
    weights by these or by the correlation of healthy rarities, and long windows that count only while shorter ones do
    ranked anomalies no better.

    References
    ----------
    .. [1] K. S. Lomax, "Business failures: another example of the analysis of failure data", Journal of the American
       Statistical Association 49, 1954.
    """

    def __init__(self, lengths: tuple[int, ...], like: StreamingKernelPCA) -> None:
        self.lengths = lengths
        missing = "marginal" if like.on_missing == "marginal" else "raise"
        kernel = RBF("spread").in_units("auto")
        self._own = {"kernel": kernel, "dtype": "float64", "on_bad_rows": "raise", "on_missing": missing}
        self.models = [StreamingKernelPCA(**{**like.get_params(deep=False), **self._own}) for _ in lengths]

    def begin(self, n_features: int) -> WindowState:
        """Return the state before the first row."""
        return WindowState(np.empty((0, n_features)), 0, np.full((n_scales(self.lengths), 3), np.nan))

    @property
    def states(self) -> States:
        """The states of the models, None before they have learned."""
        return tuple(getattr(model, "state_", None) for model in self.models)

    @states.setter
    def states(self, states: States) -> None:
        for model, state in zip(self.models, states, strict=True):
            model.state_ = state

    @property
    def kernels(self) -> tuple[Kernel | None, ...]:
        """The settled kernels of the models."""
        return tuple(None if s is None or s.summary is None else s.summary.basis.kernel for s in self.states)

    def __copy__(self) -> "Windows":
        twin = object.__new__(type(self))
        vars(twin).update(vars(self) | {"models": [copy.copy(model) for model in self.models]})
        return twin

    def followed(
        self, state: WindowState, rows: Array, stacked: Array, novelty: Array
    ) -> tuple[Array, Array, WindowState]:
        """Append the statistics of windows that end with rows (n, d) to these rows, stacked; score them, and go on.

        Statistics are NaN for rows that are rare, and until a window is full. Without lengths, nothing changes.
        """
        if not self.lengths:
            return stacked, novelty, state
        n, d = rows.shape
        # Not more than: without a scale all rows are kept.
        keep = ~(novelty > _as_rare(np.array(-np.log(_RARE)), state.scales[0]))
        series = np.concatenate([state.kept, rows[keep]])
        origin, end = state.n_kept - len(state.kept), state.n_kept + int(np.count_nonzero(keep))
        out = np.full((n, windows_width(d, self.lengths)), np.nan)
        for part, length in zip(self._split(out), self.lengths, strict=True):
            first = max(state.n_kept, length - 1)
            if length <= _AS_THEY_ARE:
                part[:] = stacked[:, : length * d]
            elif first < end:
                found = np.empty((end - first, part.shape[1]))
                window_statistics(series, origin, first, length, found)
                part[np.flatnonzero(keep)[first - state.n_kept :]] = found
        self._check(out)
        novelty = self.combined(novelty, out, state.scales)
        stacked = np.concatenate([stacked, out], axis=1)
        return stacked, novelty, state._replace(kept=series[-2 * self.lengths[-1] :], n_kept=end)

    def _split(self, statistics: Array) -> list[Array]:
        """Return the columns of each length, as views."""
        if not self.lengths:
            return []
        ends = np.cumsum([windows_width(1, [length]) for length in self.lengths])
        return np.split(statistics, ends[:-1] * (statistics.shape[1] // ends[-1]), axis=1)

    def _parts(self, statistics: Array) -> Iterator[tuple[StreamingKernelPCA, Array, npt.NDArray[np.bool_]]]:
        """Go through models, their columns, and the rows that have them."""
        for model, columns in zip(self.models, self._split(statistics), strict=True):
            part = np.ascontiguousarray(columns)
            yield model, part, rows_with_numbers(part)

    def _check(self, statistics: Array) -> None:
        """Refuse what the models would refuse to learn later."""
        for model, part, known in self._parts(statistics):
            state = getattr(model, "state_", None) or State.begin(model.settings("Monitor.update"), part.shape[1])
            check_range(state, part[known], 1.0)

    def learn(self, statistics: Array) -> None:
        """Learn from rows, each model from those that have its statistics."""
        for model, part, known in self._parts(statistics):
            if known.any():
                model.partial_fit(part[known])

    def forget(self, state: WindowState) -> WindowState:
        """Begin all models and windows anew: the stream has changed. The scale of the rows' model stays."""
        self.states, scales = (None,) * len(self.models), state.scales.copy()
        scales[1:] = np.nan
        return state.cleared()._replace(scales=scales)

    def rarities(self, novelty: Array, statistics: Array | None, scales: Array) -> Array:
        """Return the rarity (1 + K, n) of rows for all models; NaN for a length that does not count."""
        found = np.full((len(scales), len(novelty)), np.nan)
        found[0] = _rarity(novelty, scales[0])
        if statistics is None:
            return found
        for k, (model, part, known) in enumerate(self._parts(statistics), 1):
            if known.any() and np.isfinite(scales[k, 0]):
                found[k, known] = _rarity(_scores(model, part[known]), scales[k])
        return found

    def combined(self, novelty: Array, statistics: Array | None, scales: Array) -> Array:
        """Return the score of rows (n,) from their novelty for the model of the rows, and from their statistics."""
        if not len(novelty) or not has_scales(scales):
            return novelty
        rarity = self.rarities(novelty, statistics, scales)
        counts = ~np.isnan(rarity)
        # Row by row: sums over an axis may be added in another order for more rows.
        squares: Any = sum(np.where(some, part**2, 0.0) for some, part in zip(counts, rarity, strict=True))
        return _score(np.sqrt(squares / counts.sum(axis=0)))

    def level(self, k: int, score: float, scales: Array) -> float:
        """Return the novelty for model k, 0 that of the rows, which is as rare as a row with a score of all models."""
        return float(_as_rare(np.log([score]) / _POWER, scales[k])[0]) if has_scales(scales) else score

    def is_due(self, state: WindowState, kernels: tuple[Kernel | None, ...]) -> bool:
        """Tell whether a length could begin to count, or one that counts has another kernel than these before."""
        parts = enumerate(zip(state.scales[1:, 0], kernels, self.kernels, strict=True))
        return any(before != now if np.isfinite(upper) else self._may_count(k) for k, (upper, before, now) in parts)

    def _may_count(self, k: int) -> bool:
        state = self.states[k]
        return state is not None and state.n_rows >= max(_ROWS_FOR_ONE * self.lengths[k], _FEWEST)

    def calibrated(self, state: WindowState, novelty: Array, statistics: Array, n_least: int) -> WindowState:
        """Find the scales anew, from the novelty of rows that the model of the rows has not learned, and others."""
        counting = [k for k in range(len(self.lengths)) if self._may_count(k)]
        if not counting and not has_scales(state.scales):
            return state
        scales = np.full_like(state.scales, np.nan)
        scales[0] = _scale(novelty, _MOST_SURE)
        for k, (model, part, known) in enumerate(self._parts(statistics)):
            if k in counting:
                left_out = calibrate(model.state_, model.settings("Monitor"), n_least).novelty
                held = np.concatenate([left_out, _scores(model, part[known])])
                scales[k + 1] = _scale(held, _MOST_SURE if self.lengths[k] <= _AS_THEY_ARE else 1.0)
        return state._replace(scales=scales)

    def leading(self, novelty: Array, statistics: Array, scales: Array) -> int:
        """Return which model finds rows rarest in the mean: 0 for that of the rows, then the lengths."""
        if not len(novelty) or not has_scales(scales):
            return 0
        return int(np.nan_to_num(self.rarities(novelty, statistics, scales)).mean(axis=1).argmax())

    def contributions(self, k: int, statistics: Array) -> Array:
        """Return what each feature (d,) adds to the novelty of a row for length k, counted from 1."""
        model, part, _ = list(self._parts(statistics))[k - 1]
        found: Array = model.contributions(part)[0].reshape(windows_width(1, [self.lengths[k - 1]]), -1).sum(axis=0)
        return found

    def causes(
        self, k: int, kept: EventRows, first: int, scales: Array, threshold: float, names: list[str] | None
    ) -> tuple[Cause, ...]:
        """Return the causes of an event in the statistics of length k, counted from 1; their columns begin at one."""
        model, part, known = list(self._parts(kept.rows[:, first:]))[k - 1]
        times = tuple(time for time, is_known in zip(kept.times, known, strict=True) if is_known)
        rows = EventRows(kept.positions[known], part[known], times)
        level = self.level(k, threshold, scales)
        answers = answering(model.state_, model.settings("Monitor"))
        length = self.lengths[k - 1]
        if length <= _AS_THEY_ARE:
            return causes_of(rows, answers, level, length, names)
        d, causes = part.shape[1] // len(STATISTICS), []
        for cause in causes_of(rows, answers, level, 1, None):
            statistic, feature = divmod(int(cause.feature), d)
            over = f"{STATISTICS[statistic]} over {length} rows"
            causes.append(cause._replace(feature=names[feature] if names else feature, statistic=over))
        return tuple(causes)

    def record(self) -> list[Any]:
        """Return the models as data of a checkpoint."""
        return [np.frombuffer(model.to_bytes(), dtype=np.uint8).astype(np.int64) for model in self.models]

    def restore(self, record: Any, n_features: int) -> None:
        """Take the models from what `record` returned; ValueError where they do not belong here."""
        if not isinstance(record, list) or len(record) != len(self.models):
            raise ValueError("it has too many or too few models of windows")
        for k, (data, length) in enumerate(zip(record, self.lengths, strict=True)):
            model = StreamingKernelPCA.from_bytes(np.asarray(data).astype(np.uint8).tobytes())
            state = getattr(model, "state_", None)
            # The rest are those of the rows' model when the stream began, which may be set since.
            if repr({name: getattr(model, name) for name in self._own}) != repr(self._own):
                raise ValueError("a model of windows has other parameters")
            if state is not None and state.n_features != windows_width(n_features, [length]):
                raise ValueError("a model of windows has another number of features")
            self.models[k] = model


def _scores(model: StreamingKernelPCA, rows: Array) -> Array:
    novelty: Array = answering(model.state_, model.settings("Monitor.update")).novelty_by_row(rows)
    return novelty


def has_scales(scales: Array) -> bool:
    """Tell whether scores are those of all models that count, as they are from the first length on that does."""
    return bool(np.isfinite(scales[:1, 0]).any())


def _score(rarity: Array) -> Array:
    score: Array = np.exp(np.minimum(_POWER * rarity, _LARGEST_LOGARITHM))
    return score


def _scale(scores: Array, most: float) -> Array:
    """Return the upper level of healthy log scores, the slope beyond it, and the index of the tail, `most` at most."""
    if not len(scores):
        return np.full(3, np.nan)
    # Faults that were learned with a lasting change must not make the tail heavy.
    upper, far = (math.log(max(healthy_level(scores, level), _LEAST)) for level in (_UPPER, _FAR))
    slope = (far - upper) / math.log((1.0 - _UPPER) / (1.0 - _FAR))
    return np.array([upper, max(slope, _LEAST_SLOPE), np.clip((1.0 - _UPPER) * len(scores), 1.0, most)])


def _rarity(scores: Array, scale: Array) -> Array:
    """Return the rarity (n,) of scores."""
    upper, slope, n = scale
    beyond = (np.log(np.maximum(scores, _LEAST)) - upper) / slope
    farther = n * np.log1p(np.maximum(beyond, 0.0) / n)
    nearer = np.exp(np.minimum(beyond, 0.0) / _UPPER_RARITY)
    rarity: Array = np.where(beyond > 0.0, _UPPER_RARITY + farther, _UPPER_RARITY * nearer)
    return rarity


def _as_rare(rarity: Array, scale: Array) -> Array:
    """Return the scores (n,) that have a rarity: the inverse of `_rarity`."""
    upper, slope, n = scale
    with np.errstate(over="ignore"):
        farther = n * np.expm1(np.maximum(rarity - _UPPER_RARITY, 0.0) / n)
    nearer = _UPPER_RARITY * np.log(np.clip(rarity / _UPPER_RARITY, _LEAST, 1.0))
    beyond = np.where(rarity > _UPPER_RARITY, farther, nearer)
    scores: Array = np.exp(np.minimum(upper + slope * beyond, _LARGEST_LOGARITHM))
    return scores
