"""Columns: what a control chart sees of a row, each 0 on average and of variance 1 for healthy rows.

`ChangeDetector` lists them. In wide rows the first whitened coordinates stand for features. Far from healthy rows all
but products grow as logarithms, which makes exponential tails of power laws.
"""

import math
from dataclasses import dataclass

import numpy as np

from streamkpca._core.arrays import Array, Positions
from streamkpca._core.linalg import squared_norms
from streamkpca.changes import _loops as loops
from streamkpca.changes.autocorrelation import Autocorrelation, estimate_autocorrelation
from streamkpca.changes.shifts import MOST_FEATURES
from streamkpca.components.snapshot import Snapshot

# Whitened coordinates, at most.
_MOST_AXES = 30
# Independent rows for each whitened column.
_ROWS_FOR_AXIS = 20
# Columns keep their size up to this many times the quantile of it below.
_BOUND = 2.0
# The quantile of the size of a column that its bound comes from.
_BOUND_QUANTILE = 0.9
# Rounds of the search for the middle of a column.
_N_ROUNDS = 10
# Rows of one matrix product, always: bits depend on its shape, and must not on how calls cut the stream.
_BLOCK = 128


@dataclass(frozen=True)
class Projection:
    """How rows (n, d) become raw columns: `whitening` (m, r), `feature_scale` (f,), `axes` (d, k)."""

    coordinate_mean: Array
    whitening: Array
    feature_middle: Array
    feature_scale: Array
    axes: Array
    least_novelty: float

    @property
    def n_multiplied(self) -> int:
        """Number of columns whose products are columns: features or, of wide rows, the first whitened coordinates."""
        return len(self.feature_scale) or min(self.whitening.shape[1], MOST_FEATURES)

    def project(self, snapshot: Snapshot, rows: Array, effective_size: float = math.inf) -> Array:
        """Return raw columns (n, h) without products; of healthy rows themselves as if whitening had left out each."""
        with np.errstate(all="ignore"):
            coordinates, novelty = snapshot.coordinates(rows)
            away, n_features = rows - self.feature_middle, len(self.feature_scale)
            whitened, axes = (coordinates - self.coordinate_mean) @ self.whitening, away @ self.axes
            if effective_size < math.inf:
                for part in (whitened, axes):
                    part /= np.sqrt(np.maximum(1.0 - squared_norms(part) / effective_size, 0.1))[:, None]
            features = away * self.feature_scale if n_features else whitened[:, : self.n_multiplied]
            far = axes if n_features else whitened
            distance = squared_norms(far) + 0.01 * far.shape[1] + 1e-9
            logs = np.log(np.stack([novelty + self.least_novelty, distance], axis=1))
            return np.concatenate([whitened, axes, features, logs], axis=1)


@dataclass(frozen=True)
class Columns:
    """The columns of rows: raw ones, centred and scaled, and products of some of these.

    They are 0 at the `middle`, and grow as logarithms beyond a `bound`, so that few rows cannot decide a healthy scale.
    """

    projection: Projection
    middle: Array
    bound: Array
    scale: Array
    product_mean: Array
    product_scale: Array

    @property
    def bounds(self) -> Positions:
        """Where the groups of columns begin, and the last one ends."""
        f, r, k = self.projection.n_multiplied, self.projection.whitening.shape[1], self.projection.axes.shape[1]
        return np.cumsum([0, r, k, f, 2, f * (f + 1) // 2])

    def compute(self, snapshot: Snapshot, rows: Array, first: int) -> Array:
        """Return the columns (n, p) of rows from position `first` of the stream on; each row by itself."""
        raw, padded, start = np.empty((len(rows), len(self.middle))), np.empty((_BLOCK, rows.shape[1])), 0
        while start < len(rows):
            at = (first + start) % _BLOCK
            part = rows[start : start + _BLOCK - at]
            padded[:] = part[0]
            padded[at : at + len(part)] = part
            raw[start : start + len(part)] = self.projection.project(snapshot, padded)[at : at + len(part)]
            start += len(part)
        return self.finish(raw)

    def finish(self, raw: Array) -> Array:
        """Return columns (n, p) of raw ones (n, h)."""
        bounds, out = self.bounds, np.empty((len(raw), self.bounds[-1]))
        out[:, : bounds[-2]] = raw
        loops.scale_columns(out, self.middle, self.bound, self.scale)
        loops.fill_products(out, bounds[2], self.product_mean, self.product_scale)
        return out


def learn_columns(rows: Array, snapshot: Snapshot) -> tuple[Columns, Array, Autocorrelation]:
    """Return how columns are made, all columns (n, p) of healthy rows (n, d), and how long these stay correlated."""
    n, d = rows.shape
    middle, _, spread, scores = _standardise(rows)
    autocorrelation = estimate_autocorrelation(scores)
    # Independent rows that would tell as much.
    effective_size = n / autocorrelation.integrated_time
    most = int(max(effective_size / _ROWS_FOR_AXIS, 1))
    # In wide rows some features hardly ever vary: the kernel knows better in which units they count.
    n_used = d if d <= MOST_FEATURES else 0
    coordinates, novelty = snapshot.coordinates(rows)
    coordinate_mean = coordinates.mean(axis=0)
    away = coordinates - coordinate_mean
    # Tiny novelties do not count.
    energy = float((coordinates**2).sum(axis=1).mean())
    projection = Projection(
        coordinate_mean,
        whitening=_find_whitening(away.T @ away / n, min(_MOST_AXES, most), 1e-4),
        feature_middle=middle,
        feature_scale=(1.0 / spread)[:n_used],
        axes=_find_whitening(scores.T @ scores / n, min(n_used, most), 1e-6) / spread[:, None],
        least_novelty=max(0.01 * float(np.median(novelty)), 1e-9 * energy, 1e-300),
    )
    raw = projection.project(snapshot, rows, effective_size)
    middle, bound, scale, _ = _standardise(raw)
    n_products = projection.n_multiplied * (projection.n_multiplied + 1) // 2
    plain = Columns(projection, middle, bound, scale, np.zeros(n_products), np.ones(n_products))
    products = plain.finish(raw)[:, raw.shape[1] :]
    columns = Columns(projection, middle, bound, scale, products.mean(axis=0), _measure_spread(products))
    return columns, columns.finish(raw), autocorrelation


def _compress_tails(columns: Array, middle: Array, bound: Array) -> Array:
    """Return deviations (n, p), those beyond a bound as logarithms: tails of power laws become exponential."""
    out = columns.copy()
    loops.scale_columns(out, middle, bound, np.ones(len(bound)))
    return out


def _standardise(columns: Array) -> tuple[Array, Array, Array, Array]:
    """Return middle, bound and scale (p,) of columns, and these centred, compressed and scaled (n, p): 0 on average."""
    middle = np.median(columns, axis=0)
    for _ in range(_N_ROUNDS):
        bound = _BOUND * np.quantile(np.abs(columns - middle), _BOUND_QUANTILE, axis=0)
        # A column that hardly ever moves has no such quantile.
        bound = np.where(bound > 0.0, bound, _measure_spread(columns))
        middle = middle + _compress_tails(columns, middle, bound).mean(axis=0)
    compressed = _compress_tails(columns, middle, bound)
    spread = _measure_spread(compressed)
    return middle, bound, spread, compressed / spread


def _measure_spread(columns: Array) -> Array:
    """Return the standard deviations of columns (n, p), 1 where they never vary."""
    spread: Array = columns.std(axis=0)
    spread[spread <= 1e-9 * np.maximum(np.abs(columns).max(axis=0), 1.0)] = 1.0
    return spread


def _find_whitening(covariance: Array, most: int, least: float) -> Array:
    """Return the leading principal axes (d, k) of a covariance, over their deviations."""
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = values[::-1][:most], vectors[:, ::-1][:, :most]
    k = int(np.count_nonzero(values > least * max(values[0], 0.0))) if len(values) else 0
    whitening: Array = np.ascontiguousarray(vectors[:, :k] / np.sqrt(values[:k]))
    return whitening
