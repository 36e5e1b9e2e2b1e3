import copy
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

from streamkpca import IndefiniteKernelWarning, KernelPCA, StreamingKernelPCA
from streamkpca.errors import NotFittedError, SparsityWarning
from streamkpca.kernels import RBF, Cosine, Linear, Matern, Polynomial, Sigmoid
from streamkpca.stream import state as states
from streamkpca.stream import transitions

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


@pytest.fixture
def published(monkeypatch):
    """Numbers of rows at every publication, scheduled or on demand."""
    seen = []
    axes = states.axes

    def spy(state, settings):
        seen.append(state.n_rows)
        return axes(state, settings)

    for module in (states, transitions):
        monkeypatch.setattr(module, "axes", spy)
    return seen


# Input that is accepted


@pytest.mark.parametrize(
    "clothe",
    [
        np.ndarray.tolist,
        np.asfortranarray,
        lambda rows: np.repeat(rows, 2, axis=1)[:, ::2],
        lambda rows: rows.astype(">f8"),
        lambda rows: pd.DataFrame(rows),
        lambda rows: pd.DataFrame(rows, columns=["a", "b", "c"]),
        lambda rows: pl.DataFrame(rows, schema=["a", "b", "c"]),
    ],
    ids=["list", "fortran", "strided", "big-endian", "pandas", "named", "polars"],
)
def test_containers_of_rows_do_not_matter(clothe):
    plain = made().partial_fit(ROWS)
    model = made().partial_fit(clothe(ROWS[:50])).partial_fit(clothe(ROWS[50:]))
    assert_same_answers(model, plain)
    np.testing.assert_array_equal(model.transform(clothe(PROBE)), plain.transform(PROBE))


@pytest.mark.parametrize("dtype", ["f2", "f4", "i1", "i8", "u4", "?"])
def test_other_number_types_are_learned_as_float64(dtype):
    rows = np.abs(100 * ROWS).astype(dtype)
    assert_same_answers(made().partial_fit(rows), made().partial_fit(rows.astype(np.float64)))
    assert_same_answers(made().fit(rows), made().fit(rows.astype(np.float64)))


@pytest.mark.parametrize("table", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_columns_may_be_of_several_number_types(table):
    counts = np.arange(200)
    model = made().partial_fit(table({"count": counts, "value": ROWS[:, 0]}))
    assert_same_answers_of_two(model, made().partial_fit(np.column_stack([counts, ROWS[:, 0]])))
    assert list(model.feature_names_in_) == ["count", "value"]


def assert_same_answers_of_two(left, right):
    np.testing.assert_array_equal(left.transform(PROBE[:, :2]), right.transform(PROBE[:, :2]))
    np.testing.assert_array_equal(left.atom_rows_, right.atom_rows_)


def test_read_only_and_mapped_rows_are_left_alone(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    frozen = ROWS.copy()
    frozen.flags.writeable = False
    plain = made().partial_fit(ROWS)
    assert_same_answers(made().partial_fit(mapped), plain)
    assert_same_answers(made().partial_fit(frozen), plain)
    assert_same_answers(made().fit(frozen), made().fit(mapped))


@pytest.mark.parametrize("method", ["partial_fit", "fit"])
def test_the_caller_may_write_to_the_rows_later(method):
    rows, weights = ROWS.copy(), np.ones(200)
    model = getattr(made(), method)(rows, sample_weight=weights)
    rows[:], weights[:] = 1e9, 0.0
    model.refit()
    assert np.abs(model.atoms_).max() < 1e8
    assert_same_answers(model, getattr(made(), method)(ROWS).refit())


def test_y_is_ignored():
    assert_same_answers(made().partial_fit(ROWS, y="whatever"), made().partial_fit(ROWS))
    assert_same_answers(made().fit(ROWS, [1, 2]), made().fit(ROWS))


@pytest.mark.parametrize("atoms", ["moved", "rows"])
def test_rows_with_a_large_offset_are_distinguished(atoms):
    model, shifted = made(kernel=RBF(0.5), atoms=atoms).fit(ROWS), made(kernel=RBF(0.5), atoms=atoms).fit(ROWS + 1e6)
    np.testing.assert_array_equal(model.atom_rows_, shifted.atom_rows_)
    np.testing.assert_array_equal(model.atom_origins_, shifted.atom_origins_)
    np.testing.assert_allclose(shifted.atoms_, model.atoms_ + 1e6, rtol=0, atol=1e-6)
    np.testing.assert_allclose(shifted.eigenvalues_, model.eigenvalues_, rtol=1e-6)
    np.testing.assert_allclose(shifted.transform(PROBE + 1e6), model.transform(PROBE), atol=1e-6)


def test_a_kernel_so_narrow_that_nothing_resembles_anything():
    model = made(kernel=RBF(1e12), max_atoms=None, noise_variance=None, n_components=20).fit(ROWS[:30])
    np.testing.assert_array_equal(np.sort(model.atom_rows_), np.arange(30))
    np.testing.assert_allclose(model.eigenvalues_, 1 / 29, rtol=1e-9)
    assert_sound(model, PROBE)
    np.testing.assert_allclose(model.reconstruction_error(PROBE), 1.0)


@pytest.mark.parametrize("params", [{}, {"max_atoms": None, "tolerance": 0.0}])
def test_a_kernel_so_wide_that_all_rows_are_alike(params):
    model = made(kernel=RBF(1e-20), **params).fit(ROWS)
    assert model.n_atoms_ == 1
    np.testing.assert_allclose(model.eigenvalues_, 0.0, atol=1e-12)
    assert_sound(model, PROBE)


def test_a_row_of_weight_zero_changes_nothing():
    weights = np.where(np.arange(200) % 3, 1.0, 0.0)
    model = exact().partial_fit(ROWS, sample_weight=weights).refit()
    oracle = KernelPCA(3, kernel=RBF(0.4)).fit(ROWS[weights > 0.0])
    np.testing.assert_allclose(model.eigenvalues_, oracle.eigenvalues_, rtol=1e-8)
    assert not (weights[model.atom_rows_] == 0.0).any()
    assert model.n_samples_seen_ == 200
    assert model.total_weight_ == weights.sum()


def test_one_number_weighs_every_row():
    assert_same_answers(made().fit(ROWS, sample_weight=2), made().fit(ROWS, sample_weight=np.full(200, 2.0)))


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


def test_one_row_is_enough_for_a_query():
    model = made().partial_fit([[1.0, 2.0, 3.0]])
    assert_sound(model, PROBE)
    assert not model.transform(PROBE).any()
    assert model.reconstruction_error([[1.0, 2.0, 3.0]]) == pytest.approx(0.0, abs=1e-12)
    assert model.n_atoms_ == 1


@pytest.mark.parametrize("cut", [1, 3, 16, 17, 200])
def test_refits_follow_the_rows_not_the_calls(published, cut):
    # With a kernel that is settled already, as rows that are learned anew publish their axes anew.
    model = made(kernel=RBF(0.4))
    for i in range(0, 200, cut):
        model.partial_fit(ROWS[i : i + cut])
    # Blocks end at multiples of 16; the first refits at once, then growth by a quarter, at last every 48 rows.
    assert published == [16, 32, 48, 64, 80, 112, 144, 192]
    assert model.total_weight_ == 192.0


def test_refit_every_block(published):
    made(refit_every=1).partial_fit(ROWS)
    assert published == [16 * i for i in range(1, 13)]


def test_answers_do_not_change_between_refits():
    model = made(refit_every=10**6)
    model.partial_fit(ROWS[:160])
    answers = model.transform(PROBE)
    model.partial_fit(ROWS[160:165])
    np.testing.assert_array_equal(model.transform(PROBE), answers)
    assert model.n_samples_seen_ == 165


def test_refit_takes_in_the_pending_rows_and_leaves_the_stream():
    # Without the likelihood, whose search for weights begins where the last refit ended; the last axes decide signs.
    asked, left_alone = made(noise_variance=None), made(noise_variance=None)
    for i in range(0, 200, 9):
        asked.partial_fit(ROWS[i : i + 9]).refit()
        left_alone.partial_fit(ROWS[i : i + 9])
        assert asked.total_weight_ == asked.n_samples_seen_
    left, right = asked.state_, left_alone.state_
    np.testing.assert_array_equal(left.summary.moments.second, right.summary.moments.second)
    np.testing.assert_array_equal(left.summary.basis.factor, right.summary.basis.factor)
    np.testing.assert_array_equal(left.summary.atom_stats.positions, right.summary.atom_stats.positions)
    assert left.n_rows_at_refit == right.n_rows_at_refit
    np.testing.assert_array_equal(asked.refit().eigenvalues_, left_alone.refit().eigenvalues_)
    np.testing.assert_array_equal(np.abs(asked.transform(PROBE)), np.abs(left_alone.transform(PROBE)))


def test_refit_twice_is_refit_once():
    model = made(noise_variance=None).partial_fit(ROWS).refit()
    assert_same_answers(copy.deepcopy(model).refit(), model)


def test_projections_do_not_flip_between_refits():
    model = exact(n_components=2, kernel=Linear(), refit_every=1)
    rows = ROWS * [5.0, 2.0, 0.5]
    model.partial_fit(rows[:64])
    for i in range(64, 200, 16):
        before = model.transform(PROBE)
        after = model.partial_fit(rows[i : i + 16]).transform(PROBE)
        assert np.all(np.sum(before * after, axis=0) > 0.0)


def test_exact_answers_are_those_of_batch_kernel_pca():
    oracle = KernelPCA(3, kernel=RBF(0.4)).fit(ROWS)
    for model in (exact().partial_fit(ROWS).refit(), exact().fit(ROWS)):
        np.testing.assert_allclose(model.eigenvalues_, oracle.eigenvalues_, rtol=1e-8)
        np.testing.assert_allclose(np.abs(model.transform(PROBE)), np.abs(oracle.transform(PROBE)), atol=1e-7)
        np.testing.assert_allclose(model.explained_variance_ratio_, oracle.explained_variance_ratio_, rtol=1e-8)


def test_fit_forgets_what_was_before():
    fresh = made().fit(ROWS[:90])
    assert_same_answers(made().partial_fit(ROWS[:, ::-1]).fit(ROWS[:90]), fresh)
    assert_same_answers(made().fit(ROWS + 5.0).fit(ROWS[:90]), fresh)
    assert fresh.n_samples_seen_ == fresh.total_weight_ == 90


def test_fit_counts_every_row_once_in_the_final_basis():
    model = made(noise_variance=None).fit(ROWS)
    basis, moments = model.state_.summary.basis, model.state_.summary.moments
    coordinates = basis.project(ROWS).coordinates
    np.testing.assert_allclose(moments.second, coordinates.T @ coordinates, atol=1e-9)
    np.testing.assert_allclose(moments.first, coordinates.sum(axis=0), atol=1e-9)
    assert moments.losses.by_removal == 0.0


def test_a_stream_continues_after_fit():
    model = exact().fit(ROWS[:70]).partial_fit(ROWS[70:]).refit()
    oracle = KernelPCA(3, kernel=RBF(0.4)).fit(ROWS)
    np.testing.assert_allclose(model.eigenvalues_, oracle.eigenvalues_, rtol=1e-8)
    assert model.n_samples_seen_ == 200
    np.testing.assert_array_equal(ROWS[model.atom_rows_], model.atoms_)


def test_fit_transform_is_fit_then_transform():
    np.testing.assert_array_equal(made().fit_transform(ROWS), made().fit(ROWS).transform(ROWS))
    weights = np.linspace(0.5, 2.0, 200)
    np.testing.assert_array_equal(
        made().fit_transform(ROWS, sample_weight=weights), made().fit(ROWS, sample_weight=weights).transform(ROWS)
    )


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


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_later_scores_of_widths_are_those_of_a_sample_of_all_rows(method):
    X = sensors(5000)
    model = getattr(made(block_size=500, max_atoms=4, noise_variance=None), method)(X)
    sample = model.state_.summary.selection_sample
    order = np.argsort(sample.positions)
    assert len(sample) == 1024
    np.testing.assert_array_equal(sample.rows[order], X[sample.positions[order]])
    expected = RBF().width_scores(sample.rows[order], sample.inclusion_weights()[order])
    np.testing.assert_array_equal(model.width_scores_["gamma"], expected["gamma"])
    # It shows what the stream of all rows would.
    np.testing.assert_allclose(model.width_scores_["gamma"], RBF().width_scores(X)["gamma"], rtol=0.1, atol=0.05)
    again = StreamingKernelPCA.from_bytes(model.to_bytes())
    np.testing.assert_array_equal(again.width_scores_["gamma"], model.width_scores_["gamma"])


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


def test_a_lowered_budget_holds_from_the_next_block_on():
    model = made().partial_fit(ROWS[:96])
    assert model.n_atoms_ > 3
    model.set_params(max_atoms=3).partial_fit(ROWS[96:112])
    assert model.state_.summary.basis.size <= 3
    assert model.refit().n_atoms_ <= 3
    assert_sound(model, ROWS)


def test_a_raised_budget_is_used():
    # At the next search; where atoms move, searches soon are rare.
    model = made(max_atoms=2, atoms="rows").partial_fit(ROWS[:96])
    model.set_params(max_atoms=20, tolerance=0.0).partial_fit(ROWS[96:])
    assert 2 < model.refit().n_atoms_ <= 20


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


def test_axes_beyond_the_rank_are_zero():
    model = made(kernel=Linear(), n_components=6, max_atoms=None, tolerance=0.0).fit(ROWS)
    np.testing.assert_array_equal(model.eigenvalues_[3:], 0.0)
    assert not model.transform(PROBE)[:, 3:].any()
    np.testing.assert_allclose(model.eigenvalues_[:3], np.linalg.eigvalsh(np.cov(ROWS.T))[::-1], rtol=1e-8)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_fraction_takes_the_fewest_axes(share):
    model = exact(n_components=share).fit(ROWS)
    ratios = KernelPCA(200, kernel=RBF(0.4)).fit(ROWS).explained_variance_ratio_
    assert len(model.eigenvalues_) == np.flatnonzero(np.cumsum(ratios) >= share)[0] + 1
    assert model.transform(PROBE).shape == (7, len(model.eigenvalues_))


def test_a_fraction_beyond_all_axes_takes_all_axes():
    model = made(n_components=0.999, kernel=RBF(5.0), max_atoms=3, noise_variance=None).fit(ROWS)
    assert len(model.eigenvalues_) == 3
    assert model.explained_variance_ratio_.sum() < 0.999


# Copies


COPIES = [
    pytest.param(copy.copy, id="copy"),
    pytest.param(copy.deepcopy, id="deepcopy"),
    pytest.param(lambda model: pickle.loads(pickle.dumps(model)), id="pickle"),
]


@pytest.mark.parametrize("twin_of", COPIES)
@pytest.mark.parametrize("n", [5, 96, 101])
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


@pytest.mark.parametrize("twin_of", COPIES)
def test_copies_of_an_unfitted_model_are_unfitted(twin_of):
    assert not hasattr(twin_of(made()), "atoms_")


def test_clones_have_the_parameters_and_nothing_else():
    model = made(kernel=RBF(0.3) + 0.1 * Linear()).partial_fit(ROWS)
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert not hasattr(twin, "atoms_")
    assert_same_answers(twin.partial_fit(ROWS), model)


def test_snapshot_arrays_are_read_only():
    model = made().partial_fit(ROWS)
    for name in ("atoms_", "atom_rows_", "atom_origins_", "weights_", "eigenvalues_", "explained_variance_ratio_"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(model, name)[0] = 0
    np.testing.assert_array_equal(model.active_, model.weights_ > 0)


def test_queries_do_not_change_the_stream():
    asked, left_alone = made(), made()
    for i in range(0, 200, 11):
        asked.partial_fit(ROWS[i : i + 11])
        left_alone.partial_fit(ROWS[i : i + 11])
        assert_sound(asked, PROBE)
        asked.get_feature_names_out()
    assert_same_answers(asked, left_alone)
    assert_same_answers(asked.refit(), left_alone.refit())


# Kernels that are not positive definite, and sparsity that cannot be had


@pytest.mark.parametrize("params", [{}, {"max_atoms": None}, {"max_atoms": None, "tolerance": 0.0}, {"center": False}])
def test_an_indefinite_kernel_warns_and_continues(params):
    model = made(kernel=Sigmoid(1.0, coef0=-1.0), **params)
    with pytest.warns(IndefiniteKernelWarning, match="not positive definite"):
        model.fit(ROWS)
    assert_sound(model, PROBE)


def test_an_indefinite_kernel_streams_to_the_end():
    model = made(kernel=Sigmoid(2.0, coef0=-2.0))
    with pytest.warns(IndefiniteKernelWarning):
        [model.partial_fit(ROWS[i : i + 10]) for i in range(0, 200, 10)]
    assert_sound(model, PROBE)
    assert model.n_samples_seen_ == 200


def test_a_noise_variance_that_leaves_no_atom_warns_and_continues():
    model = made(noise_variance=1e6)
    with pytest.warns(SparsityWarning, match="leaves no atom active.*all atoms are active"):
        model.fit(ROWS)
    assert_sound(model, PROBE)
    assert model.n_active_ == model.n_atoms_


@pytest.mark.parametrize("kernel", [RBF(), RBF("median"), Linear(), Polynomial(), Cosine(), Matern()], ids=repr)
@pytest.mark.filterwarnings("ignore::streamkpca.errors.SparsityWarning")
def test_all_kernels_and_ways_to_be_sparse_give_sound_answers(kernel):
    for params in ({}, {"n_active": 2}, {"axes": "likelihood"}, {"noise_variance": None}):
        model = made(kernel=kernel, **params)
        for i in range(0, 100, 13):
            model.partial_fit(ROWS[i : i + 13])
            assert_sound(model, PROBE)
