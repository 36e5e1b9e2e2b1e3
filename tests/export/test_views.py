"""The scales that exports write: fresh rows are as rare as they say, whatever the rows are like."""

import numpy as np
import pytest
from exports import rarity_of

from streamkpca import StreamingKernelPCA
from streamkpca.export.views import SINGLE_ROUNDING, fit_views, tabulate
from streamkpca.kernels import RBF

pytestmark = pytest.mark.slow


def rows_of(kind, n=6000):
    rng = np.random.default_rng(5)
    if kind == "ring":
        return np.sin(rng.uniform(0.0, 2.0 * np.pi, (n, 1)) + np.arange(4)) + 0.1 * rng.normal(size=(n, 4))
    if kind == "column":
        return rng.exponential(size=(n, 1))
    rows = rng.normal(size=(n, 1)) + 0.5 * rng.standard_t(4, size=(n, 5)) * [1.0, 10.0, 0.1, 0.0, 1.0]
    return np.round(rows, 1) if kind == "rounded" else rows


@pytest.mark.parametrize("kind", ["ring", "column", "tails", "rounded"])
def test_fresh_rows_are_as_rare_as_the_scales_say(kind):
    rows = rows_of(kind)
    model = StreamingKernelPCA(2, kernel=RBF().in_units("std"), max_atoms=32).partial_fit(rows[:3000])
    rarity = rarity_of(model, rows[3000:])
    for period in (5.0, 20.0, 100.0):
        assert 0.4 / period < (rarity >= period).mean() < 1.6 / period


def test_levels_ascend_and_stay_above_rounding():
    model = StreamingKernelPCA(2, max_atoms=16).partial_fit(np.round(rows_of("rounded")))
    levels = tabulate(fit_views(model), 2.0, single=True)["levels"]
    assert (np.diff(levels) >= 0.0).all()
    assert (np.diff(levels)[:, -1] >= 0.5).all()
    assert (levels[0] >= np.log(2.0 * SINGLE_ROUNDING)).all()


def test_sampled_rows_with_gaps_do_not_count():
    rows = rows_of("ring")
    gapped = rows.copy()
    gapped[np.random.default_rng(0).random(len(rows)) < 0.5, 1] = np.nan
    settings = {"max_atoms": 32, "missing": "marginal"}
    whole, half = (StreamingKernelPCA(2, **settings).partial_fit(given) for given in (rows, gapped))
    n_whole, n_half = (len(fit_views(model).scales[1].logs) for model in (whole, half))
    assert 0.3 * n_whole < n_half < 0.7 * n_whole
    gapped[:, 1] = np.nan
    gapped[0] = 0.0
    assert fit_views(StreamingKernelPCA(2, **settings).partial_fit(gapped)) is None
