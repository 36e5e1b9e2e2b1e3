import copy
import pickle

import numpy as np
import pytest

from streamkpca import IndefiniteKernelWarning, KernelPCA, StreamingKernelPCA
from streamkpca.errors import NotFittedError, SparsityWarning
from streamkpca.kernels import RBF, Cosine, Linear, Matern, Sigmoid

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(200, 3))
PROBE = RNG.normal(size=(7, 3))


def made(**params):
    settings = {"n_components": 3, "max_atoms": 8, "block_size": 16, "refit_every": 48} | params
    return StreamingKernelPCA(**settings)


def exact(**params):
    return made(**({"max_atoms": None, "tolerance": 0.0, "kernel": RBF(0.4)} | params))


def assert_same_answers(left, right):
    for name in ("eigenvalues_", "explained_variance_ratio_", "atoms_", "atom_rows_", "atom_origins_", "weights_"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name))
    np.testing.assert_array_equal(left.transform(PROBE), right.transform(PROBE))
    np.testing.assert_array_equal(left.reconstruction_error(PROBE), right.reconstruction_error(PROBE))
    assert left.n_samples_seen_ == right.n_samples_seen_


def assert_sound(model, rows):
    answers = [
        model.transform(rows),
        model.reconstruction_error(rows),
        model.reconstruction_error(rows, 0),
        model.score_samples(rows),
        model.eigenvalues_,
        model.explained_variance_ratio_,
        model.weights_,
    ]
    assert all(np.isfinite(answer).all() for answer in answers)
    assert np.isfinite(model.unexplained_energy_ratio_)
    assert np.all(model.eigenvalues_ >= 0.0)
    assert np.all(np.diff(model.eigenvalues_) <= 0.0)
    assert model.n_active_ <= model.n_atoms_


# Input that is accepted


@pytest.mark.parametrize("method", ["partial_fit", "fit"])
def test_the_caller_may_write_to_the_rows_later(method):
    rows, weights = ROWS.copy(), np.ones(200)
    model = getattr(made(), method)(rows, sample_weight=weights)
    rows[:], weights[:] = 1e9, 0.0
    model.refit()
    assert np.abs(model.atoms_).max() < 1e8
    assert_same_answers(model, getattr(made(), method)(ROWS).refit())


# The stream


@pytest.mark.parametrize("atoms", ["moved", "rows"])
def test_atom_rows_are_positions_in_the_stream(atoms):
    model, n_moved = made(atoms=atoms), 0
    for i in range(0, 200, 7):
        model.partial_fit(ROWS[i : i + 7])
        n_moved += assert_atoms_come_from(model, ROWS[: i + 7])
        assert model.n_samples_seen_ == min(i + 7, 200)
        assert model.n_atoms_ <= 8
    n_moved_by_fit = assert_atoms_come_from(model.fit(ROWS), ROWS)
    assert (n_moved > 0) == (n_moved_by_fit > 0) == (atoms == "moved")


def assert_atoms_come_from(model, rows):
    """Check that atoms are the rows that they claim to be, or have moved from one; return how many have moved."""
    is_row = model.atom_rows_ >= 0
    np.testing.assert_array_equal(rows[model.atom_rows_[is_row]], model.atoms_[is_row])
    np.testing.assert_array_equal(model.atom_origins_[is_row], model.atom_rows_[is_row])
    assert np.all(model.atom_rows_[~is_row] == -1)
    origins = model.atom_origins_
    assert np.all((origins >= 0) & (origins < len(rows)))
    assert len(set(origins.tolist())) == model.n_atoms_
    return np.count_nonzero(~is_row)


def test_before_the_first_block_answers_come_from_the_rows_so_far():
    model = exact()
    for n in (1, 2, 5, 15):
        model.partial_fit(ROWS[model.n_samples_seen_ if n > 1 else 0 : n])
        oracle = KernelPCA(3, kernel=RBF(0.4)).fit(ROWS[:n])
        np.testing.assert_allclose(model.eigenvalues_, oracle.eigenvalues_, atol=1e-10)
        np.testing.assert_allclose(model.reconstruction_error(PROBE), oracle.reconstruction_error(PROBE), atol=1e-9)
        assert model.transform(PROBE).shape == (7, 3)
        assert model.n_samples_seen_ == n


@pytest.mark.parametrize(
    ("refit_every", "published"),
    # Blocks end at multiples of 16; the first refits at once, then growth by a quarter, at last every 48 rows.
    [(48, [16, 32, 48, 64, 80, 112, 144, 192]), (1, list(range(16, 200, 16)))],
)
def test_refits_follow_the_rows_not_the_calls(refit_every, published):
    # With a kernel that is settled already, as rows that are learned anew publish their axes anew.
    model = made(kernel=RBF(0.4), refit_every=refit_every).partial_fit(ROWS[:16])
    seen = [model.total_weight_]
    for i in range(16, 200):
        model.partial_fit(ROWS[i : i + 1])
        seen.append(model.total_weight_)
    assert sorted(set(seen)) == published
    assert made(kernel=RBF(0.4), refit_every=refit_every).partial_fit(ROWS).total_weight_ == published[-1]


def test_refit_takes_in_the_pending_rows_and_leaves_the_stream():
    # Without the likelihood, whose search for weights begins where the last refit ended; the last axes decide signs.
    asked, left_alone = made(noise_variance=None), made(noise_variance=None)
    for i in range(0, 200, 9):
        asked.partial_fit(ROWS[i : i + 9]).refit()
        left_alone.partial_fit(ROWS[i : i + 9])
        assert asked.total_weight_ == asked.n_samples_seen_
    assert_same_answers(copy.deepcopy(asked).refit(), asked)
    np.testing.assert_array_equal(asked.refit().eigenvalues_, left_alone.refit().eigenvalues_)
    np.testing.assert_array_equal(np.abs(asked.transform(PROBE)), np.abs(left_alone.transform(PROBE)))


def test_fit_forgets_what_was_before():
    fresh = made().fit(ROWS[:90])
    assert_same_answers(made().partial_fit(ROWS[:, ::-1]).fit(ROWS[:90]), fresh)
    assert_same_answers(made().fit(ROWS + 5.0).fit(ROWS[:90]), fresh)
    assert fresh.n_samples_seen_ == fresh.total_weight_ == 90


def test_fit_counts_every_row_once_in_the_final_basis():
    model = made(noise_variance=None).fit(ROWS)
    assert model.unexplained_energy_ratio_ == pytest.approx(model.reconstruction_error(ROWS).mean(), abs=1e-12)
    covariance = np.cov(model.set_params(n_components=8).refit().transform(ROWS).T)
    np.testing.assert_allclose(covariance, np.diag(model.eigenvalues_), atol=1e-9)


def test_the_scale_is_settled_on_the_first_block_and_again_when_blocks_have_doubled():
    model = made(kernel="rbf").partial_fit(ROWS[:16]).partial_fit(100 * ROWS[16:31])
    # So few rows tell nothing about contrast.
    assert model.kernel_.gamma == pytest.approx(1 / ROWS[:16].var(axis=0).sum(), rel=1e-14)
    rows = np.concatenate([ROWS[:16], 100 * ROWS[16:]])
    for stop, n_settled in [(32, 32), (63, 32), (64, 64), (127, 64)]:
        model.partial_fit(rows[model.n_samples_seen_ : stop])
        assert model.kernel_ == RBF().settled(rows[:n_settled])
    assert model.kernel == "rbf"


def sensors(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 4)) @ np.random.default_rng(1).normal(size=(4, 10)) + 0.05 * rng.normal(size=(n, 10))


def test_scores_of_widths_show_the_choice():
    X, kernel = sensors(200), RBF().on([0, 2, 3, 5, 6]) + Matern()
    model = made(kernel=kernel, block_size=64)
    for n, shown in [(10, 10), (63, 63), (64, 64), (100, 64), (128, 128), (200, 192)]:
        model.partial_fit(X[0 if n == 10 else model.n_samples_seen_ : n])
        scores, expected = model.width_scores_, kernel.width_scores(X[:shown])
        assert set(scores) == {"left__kernel__gamma", "right__length_scale"}
        for path, values in scores.items():
            np.testing.assert_array_equal(values, expected[path])
            if n in (10, 64):
                assert model.kernel_.parameters()[path] in values[:, 0]
    assert model.refit().width_scores_.keys() == scores.keys()


def test_scores_of_widths_change_nothing_and_need_rows():
    with pytest.raises(NotFittedError, match="width_scores_"):
        _ = made().width_scores_
    model = made().partial_fit(ROWS[:100])
    before = model.to_bytes()
    assert set(model.width_scores_) == {"gamma"}
    assert model.to_bytes() == before
    assert made(kernel="linear").partial_fit(ROWS).width_scores_ == {}
    assert set(made(kernel=RBF(0.3)).partial_fit(ROWS).width_scores_) == {"gamma"}
    without_weight = made().partial_fit(ROWS[:10], sample_weight=0.0)
    np.testing.assert_array_equal(without_weight.width_scores_["gamma"][:, 1], 0.5)
    # Weights that `forget` has reduced below those that a row may have.
    faint = model.forget(1e-110).partial_fit(ROWS[100:104])
    assert np.isfinite(faint.width_scores_["gamma"]).all()


# Parameters in mid-stream


def test_a_budget_may_be_set_and_removed():
    model = made(max_atoms=None, tolerance=0.01).partial_fit(ROWS[:96])
    model.set_params(max_atoms=4).partial_fit(ROWS[96:160])
    assert model.refit().n_atoms_ <= 4
    model.set_params(max_atoms=None).partial_fit(ROWS[160:])
    assert_sound(model.refit(), ROWS)


def test_the_number_of_axes_changes_at_the_next_refit():
    model = made(refit_every=10**6).partial_fit(ROWS)
    assert model.set_params(n_components=2).transform(PROBE).shape == (7, 3)
    assert model.refit().transform(PROBE).shape == (7, 2)
    assert model.set_params(n_components=5).refit().transform(PROBE).shape == (7, 5)
    np.testing.assert_allclose(model.set_params(center=False).refit().eigenvalues_.sum(), model.eigenvalues_.sum())


# Copies


@pytest.mark.parametrize(
    ("n", "twin_of"),
    [(5, copy.copy), (96, copy.deepcopy), (101, lambda model: pickle.loads(pickle.dumps(model)))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies_are_independent(twin_of, n):
    model = made().partial_fit(ROWS[:n])
    twin = twin_of(model)
    assert repr(twin) == repr(model)
    assert_same_answers(twin, model)
    twin.partial_fit(10.0 + ROWS[:40])
    assert_same_answers(model, made().partial_fit(ROWS[:n]))
    model.partial_fit(ROWS[n:])
    assert_same_answers(model, made().partial_fit(ROWS))
    assert_same_answers(twin, made().partial_fit(ROWS[:n]).partial_fit(10.0 + ROWS[:40]))


# Kernels that are not positive definite, and sparsity that cannot be had


@pytest.mark.parametrize("params", [{}, {"max_atoms": None, "tolerance": 0.0, "center": False}])
def test_an_indefinite_kernel_warns_and_continues(params):
    model = made(kernel=Sigmoid(1.0, coef0=-1.0), **params)
    with pytest.warns(IndefiniteKernelWarning, match="not positive definite"):
        model.fit(ROWS)
    assert_sound(model, PROBE)


def test_a_noise_variance_that_leaves_no_atom_warns_and_continues():
    model = made(noise_variance=1e6)
    with pytest.warns(SparsityWarning, match="leaves no atom active.*all atoms are active"):
        model.fit(ROWS)
    assert_sound(model, PROBE)
    assert model.n_active_ == model.n_atoms_


@pytest.mark.parametrize("kernel", [RBF("median"), Linear(), Cosine() + Matern()], ids=repr)
@pytest.mark.filterwarnings("ignore::streamkpca.errors.SparsityWarning")
def test_all_kernels_and_ways_to_be_sparse_give_sound_answers(kernel):
    for params in ({}, {"n_active": 2}, {"axes": "likelihood"}, {"noise_variance": None}):
        model = made(kernel=kernel, **params)
        for i in range(0, 100, 13):
            model.partial_fit(ROWS[i : i + 13])
            assert_sound(model, PROBE)
