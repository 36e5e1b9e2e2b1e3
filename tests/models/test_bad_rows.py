"""missing="skip": a stream leaves out rows with NaN or infinity, and keeps their positions."""

import numpy as np
import pytest
from comparisons import given_in_pieces
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from strategies import cuts, drifting_rows, kernel_cases, streaming_model, untied_budgets

from streamkpca import StreamingKernelPCA, kernels, merge

ROWS = np.random.default_rng(0).normal(size=(300, 3))
NAN, INF = np.nan, np.inf


def with_bad_rows(X, places, bad=NAN):
    X = X.copy()
    X[places, np.arange(len(places)) % X.shape[1]] = bad
    return X


@pytest.mark.slow
@given(
    st.data(), drifting_rows(min_rows=2, max_rows=70), kernel_cases(), untied_budgets(), st.sampled_from([None, 20.0])
)
def test_bad_rows_are_rows_without_weight(data, X, case, budget, half_life):
    bad = np.array(sorted(data.draw(st.sets(st.integers(0, len(X) - 1), max_size=len(X)))), dtype=int)
    weights = np.ones(len(X))
    weights[bad] = 0.0
    # Of rows: samples draw by the bytes of all rows, and the order of the draws decides the last digits of moves.
    budget = budget | {"atoms": "rows"}
    skipping, weighted = (
        streaming_model(3, kernel=case.kernel, refit_every=16, half_life=half_life, **budget) for _ in range(2)
    )
    skipping.set_params(missing="skip")
    given = with_bad_rows(X, bad, data.draw(st.sampled_from([NAN, INF, -INF])))
    whole = clone(skipping).partial_fit(given)
    given_in_pieces(skipping, given, None, data.draw(cuts(len(X))))
    assert skipping.to_bytes() == whole.to_bytes()
    weighted.partial_fit(X, sample_weight=weights)
    assert skipping.n_rows_rejected_ == len(bad)
    assert skipping.n_samples_seen_ == len(X)
    assert skipping.total_weight_ == weighted.total_weight_
    assert skipping.atom_origins_.tolist() == weighted.atom_origins_.tolist()
    assert not np.isin(skipping.atom_rows_, bad).any()
    np.testing.assert_array_equal(skipping.transform(X), weighted.transform(X))


def picky(X, Y):
    """Cosines, which rows of zeros do not have."""
    lengths = [np.linalg.norm(Z, axis=1) for Z in (X, Y)]
    assert all(np.all(length > 0.0) for length in lengths)
    return X @ Y.T / np.outer(*lengths)


def test_kernels_of_the_caller_never_see_a_bad_row():
    X = with_bad_rows(ROWS, np.arange(0, 300, 3))
    model = StreamingKernelPCA(2, kernel=kernels.Custom(picky), block_size=32, missing="skip")
    for start in range(0, 300, 7):
        model.partial_fit(X[start : start + 7])
    model.partial_fit(np.full((70, 3), NAN)).refit()
    assert model.n_rows_rejected_ == 170
    assert np.isfinite(model.transform(ROWS)).all()


def test_fit_leaves_them_out_too():
    bad = np.array([0, 5, 31, 32, 200])
    skipping = StreamingKernelPCA(2, max_atoms=20, block_size=32, missing="skip").fit(with_bad_rows(ROWS, bad))
    weights = np.ones(300)
    weights[bad] = 0.0
    weighted = StreamingKernelPCA(2, max_atoms=20, block_size=32).fit(ROWS, sample_weight=weights)
    assert skipping.atom_origins_.tolist() == weighted.atom_origins_.tolist()
    np.testing.assert_array_equal(skipping.transform(ROWS), weighted.transform(ROWS))
    assert (skipping.n_rows_rejected_, skipping.n_samples_seen_) == (5, 300)
    skipping.partial_fit(ROWS)
    assert (skipping.n_rows_rejected_, skipping.n_samples_seen_) == (5, 600)
    with pytest.raises(ValueError, match="fit: none of the 4 rows can be used: each was left out"):
        skipping.fit(np.full((4, 3), NAN))
    assert skipping.n_samples_seen_ == 600


def test_merging_adds_them_up():
    models = [StreamingKernelPCA(2, kernel=kernels.RBF(0.5), block_size=32, missing="skip") for _ in range(3)]
    models[0].partial_fit(with_bad_rows(ROWS, np.arange(10)))
    models[1].partial_fit(np.full((40, 3), NAN))
    models[2].partial_fit(ROWS[:20])
    whole = merge(*models)
    assert (whole.n_rows_rejected_, whole.n_samples_seen_, whole.total_weight_) == (50, 360, 310.0)
    unsettled = [StreamingKernelPCA(2, block_size=32, missing="skip") for _ in range(2)]
    unsettled[0].partial_fit(ROWS[:20])
    unsettled[1].partial_fit(np.full((40, 3), NAN)).partial_fit(ROWS[:5])
    whole = merge(*unsettled)
    assert (whole.n_rows_rejected_, whole.n_samples_seen_, whole.total_weight_) == (40, 65, 25.0)
