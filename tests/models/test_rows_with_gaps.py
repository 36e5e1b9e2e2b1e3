"""The parameter `missing`: what becomes of rows with NaN, of all kinds of tables, and in all questions."""

import numpy as np
import pytest

from streamkpca import KernelPCA, StreamingKernelPCA
from streamkpca.kernels import RBF

RANDOM = np.random.default_rng(0)
WHOLE = RANDOM.normal(size=(400, 2)) @ RANDOM.normal(size=(2, 5)) + 0.1 * RANDOM.normal(size=(400, 5))
ROWS = np.where(RANDOM.random(WHOLE.shape) < 0.1, np.nan, WHOLE)
ROWS[7] = np.nan
NAN = np.isnan(ROWS)


def model_of(missing="marginal", **settings):
    return StreamingKernelPCA(
        2, **{"kernel": RBF(0.2), "max_atoms": 24, "block_size": 64, "missing": missing, **settings}
    )


def test_rows_with_gaps_are_refused_unless_asked_for():
    with pytest.raises(ValueError, match='missing="marginal" to use what they have'):
        model_of("raise").partial_fit(ROWS)


@pytest.mark.parametrize("learn", ["partial_fit", "fit"])
def test_rows_with_gaps_are_left_out(learn):
    skipping = getattr(model_of("skip"), learn)(ROWS)
    assert skipping.n_rows_rejected_ == NAN.any(axis=1).sum()
    with pytest.raises(ValueError, match="contains NaN"):
        skipping.transform(ROWS)


@pytest.mark.parametrize("missing", ["skip", "marginal"])
def test_infinite_numbers_are_no_gaps(missing):
    rows = ROWS.copy()
    rows[3, 1] = np.inf
    model = model_of(missing).partial_fit(rows)
    n_left_out = NAN.any(axis=1) if missing == "skip" else NAN.all(axis=1)
    n_left_out[3] = True
    assert model.n_rows_rejected_ == n_left_out.sum()
    if missing == "marginal":
        with pytest.raises(ValueError, match="contains infinity"):
            model.novelty(rows)


@pytest.mark.parametrize("learn", ["partial_fit", "fit"])
def test_only_rows_without_any_number_are_left_out(learn):
    model = getattr(model_of(), learn)(ROWS).refit()
    assert (model.n_rows_rejected_, model.total_weight_) == (1, pytest.approx(399.0))


def test_every_question_takes_gaps_one_row_as_many():
    model = model_of().partial_fit(ROWS)
    rows = ROWS[~NAN.all(axis=1)][:50]
    for method in ("transform", "novelty", "score_samples", "reconstruction_error"):
        whole = getattr(model, method)(rows)
        assert np.isfinite(whole).all()
        single = np.concatenate([getattr(model, method)(row[None]) for row in rows])
        np.testing.assert_allclose(single, whole, rtol=1e-6, atol=1e-9)
    assert np.isfinite(model.reconstruction_error(rows, 2)).all()
    with pytest.raises(ValueError, match="contains NaN"):
        model.score(ROWS)


def test_a_stream_keeps_what_it_began_with():
    model = model_of().partial_fit(ROWS)
    with pytest.raises(ValueError, match="cannot change to or from 'marginal' within a stream"):
        model.set_params(missing="skip").partial_fit(WHOLE)
    with pytest.raises(ValueError, match="cannot change to or from 'marginal'"):
        model_of("raise").partial_fit(WHOLE).set_params(missing="marginal").partial_fit(ROWS)
    model_of("raise").partial_fit(WHOLE).set_params(missing="skip").partial_fit(ROWS)


def test_models_of_rows_with_and_without_gaps_merge():
    merged = model_of().partial_fit(ROWS).merge(model_of("skip").partial_fit(WHOLE))
    assert merged.total_weight_ == pytest.approx(799.0)
    assert np.isfinite(merged.novelty(ROWS[:5])).all()
    plain = model_of("raise").partial_fit(WHOLE)
    with pytest.raises(ValueError, match="without gaps"):
        plain.merge(model_of().partial_fit(ROWS))


def test_any_model_imputes():
    model = model_of("raise").partial_fit(WHOLE)
    usable = ~NAN.all(axis=1)
    error = (model.impute(ROWS) - WHOLE)[NAN & usable[:, None]]
    assert np.sqrt(np.mean(error**2)) < 0.5 * WHOLE.std()
    with pytest.raises(ValueError, match="contains infinity"):
        model.impute([[np.inf] * 5])
    assert not hasattr(KernelPCA, "impute")


def test_a_missing_constant_spoils_no_row_beside_it():
    rows = np.column_stack([WHOLE[:, :2], np.full(400, 7.0)])
    model, asked = model_of().partial_fit(rows), rows[:40].copy()
    asked[::2, 2] = asked[1::2, 1] = np.nan
    np.testing.assert_allclose(model.impute(asked), [model.impute(row[None])[0] for row in asked], atol=1e-6)


def test_more_features_than_rows_and_constant_columns():
    rows = np.hstack([np.full((30, 2), 7.0), RANDOM.normal(size=(30, 60))])
    rows[RANDOM.random(rows.shape) < 0.1] = np.nan
    model = model_of(kernel="rbf").partial_fit(rows).refit()
    completed = model.impute(rows)
    assert np.isfinite(completed).all()
    np.testing.assert_allclose(completed[:, :2], 7.0)


@pytest.mark.parametrize("scale", [1e-150, 1e30])
def test_units_of_any_size(scale):
    usual = model_of(kernel="rbf").partial_fit(ROWS)
    scaled = model_of(kernel="rbf").partial_fit(ROWS * scale)
    np.testing.assert_allclose(scaled.eigenvalues_, usual.eigenvalues_, rtol=1e-6)
    np.testing.assert_allclose(scaled.impute(ROWS * scale) / scale, usual.impute(ROWS), rtol=0, atol=1e-5)
