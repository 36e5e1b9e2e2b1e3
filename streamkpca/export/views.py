"""How rare a row is and what is expected of its numbers, as tables of exports: two views of a monitor."""

from typing import Final, NamedTuple

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca.components.relation import Relation
from streamkpca.models.streaming import StreamingKernelPCA
from streamkpca.monitoring.rarity import RarityScale
from streamkpca.stream.calibration import calibrate

# Rarities 1, 2, 4, ... 32,768 whose scores are written: two numbers each for thirty bits.
N_LEVELS: Final = 16
# Rounding of scores in single precision and in double, in units of k(x, x).
SINGLE_ROUNDING: Final = 1e-5
_DOUBLE_ROUNDING = 1e-12
# Of fewer sampled rows no scale is made, as in a monitor.
LEAST_ROWS: Final = 64
# The table of more features is larger than that of most models' atoms.
MOST_FEATURES: Final = 256
# Sampled rows that had no part in the choice of atoms are enough, if there are as many. With 250, the share of healthy
# rows that were once in 100 deviated by 0.7 percent from stream to stream; with 1,000, for which others count, by 0.2.
_ENOUGH = 1000
# Rarity at which both views are compared: low enough that many sampled rows reach it.
_COMPARED = 20.0
# Least distance of the two highest levels, beyond which rarity grows by it: rounding is no distance.
_LEAST_STEP = 0.5


class BothViews(NamedTuple):
    """The place of a row, and the relation of its numbers: what an answer knows that sees one row alone.

    A row is as rare as its rarer view. A healthy row is rare by one or the other `rarity_divisor` times as often as by
    one alone, 1 to 2 times; rarities are divided by it.
    """

    relation: Relation
    scales: tuple[RarityScale, ...]
    rarity_divisor: float


def fit_views(model: object) -> BothViews | None:
    """Fit both views to a model's sampled rows without gaps; None of fewer than 64 rows, or over 256 features."""
    if not isinstance(model, StreamingKernelPCA) or not model.reservoir_size:
        return None
    found = calibrate(model.state_, model.settings(), n_least=_ENOUGH)
    is_whole = ~np.isnan(found.rows).any(axis=1)
    rows = found.rows[is_whole]
    if len(rows) < LEAST_ROWS or rows.shape[1] > MOST_FEATURES:
        return None
    relation, surprise = Relation.fit_in_parts(rows)
    scores = np.stack([found.novelty[is_whole], surprise])
    scales = tuple(map(RarityScale.fit, scores))
    rarer = np.max([scale.rank(view) for scale, view in zip(scales, scores, strict=True)], axis=0)
    n_rare = _COMPARED * float(np.mean(rarer >= _COMPARED))
    return BothViews(relation, scales, min(max(n_rare, 1.0), float(len(scales))))


def tabulate(views: BothViews, own: float, *, single: bool) -> dict[str, Array]:
    """Return the tables of the C text `c_rarity.c`, but for how numbers are standardised.

    `precision` is the lower triangle of the relation's, row after row, with the reciprocals of its diagonal. `levels`
    (2, 16) are logarithms of scores, none below rounding, which novelty has in units of `own`, k(x, x).
    """
    precision = views.relation.precision.copy()
    np.fill_diagonal(precision, 1.0 / np.diagonal(precision))
    rounding = SINGLE_ROUNDING if single else _DOUBLE_ROUNDING
    levels = np.array([[scale.level(2.0**k) for k in range(N_LEVELS)] for scale in views.scales])
    levels = np.log(np.maximum(levels, [[rounding * own], [rounding]]))
    levels[:, -1] = np.maximum(levels[:, -1], levels[:, -2] + _LEAST_STEP)
    return {
        "precision": precision[np.tril_indices(len(precision))],
        "inverse_units": 1.0 / views.relation.units,
        "levels": levels,
        "rarity_divisor": np.array([views.rarity_divisor]),
    }
