"""Laws of streams whose atoms move, while a sample holds all rows and after it overflows.

The samples of a small budget hold a thousand rows. Here they hold 24, and moves need to gain little, so that short
streams see both kinds of moves.
"""

import copy
from itertools import product

import numpy as np
import pytest
from comparisons import assert_energy_is_conserved
from hypothesis import given
from hypothesis import strategies as st
from strategies import budgets, drifting_rows, kernel_cases, rows, streaming_model, weights_for

from streamkpca import ApproximateKernelPCA, KernelPCA, StreamingKernelPCA, kernels
from streamkpca.dictionary.selection import selection_sample_size
from streamkpca.kernels import RBF
from streamkpca.stream import state as states
from streamkpca.stream import step, transitions
from streamkpca.stream.state import record_pending

HORIZON = step._HORIZON
HALF_LIVES = st.sampled_from([None, None, 0.7, 5.0, 60.0])


@pytest.fixture(scope="module", autouse=True)
def small_samples():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states, "selection_sample_size", lambda max_atoms: 24)
        patch.setattr(step, "_HORIZON", 50.0)
        yield


@pytest.fixture
def usual_samples(monkeypatch):
    monkeypatch.setattr(states, "selection_sample_size", selection_sample_size)
    monkeypatch.setattr(step, "_HORIZON", HORIZON)


def settings_of_moves():
    """Few atoms and small blocks, so that there are sampled rows enough for each atom, and searches enough."""
    return st.fixed_dictionaries(
        {
            "max_atoms": st.integers(1, 5),
            "tolerance": st.sampled_from([0.0, 1e-6, 1e-3]),
            "block_size": st.sampled_from([4, 8, 16]),
        }
    )


def stream_of(model):
    stream = model.state_
    return record_pending(stream, model.settings())


def assert_sound(model, X):
    """Check the account, the factor and the places that atoms come from, against the rows given so far."""
    summary = model.state_.summary or stream_of(model)
    assert_energy_is_conserved(summary)
    gram = summary.basis.kernel.program.gram(summary.basis.atoms)
    np.testing.assert_allclose(
        summary.basis.factor @ summary.basis.factor.T, gram, atol=1e-9 * np.abs(gram).max(initial=0.0)
    )
    positions = summary.atom_stats.positions
    assert len(set(positions.tolist())) == len(positions) == summary.basis.size
    is_row = positions >= 0
    np.testing.assert_array_equal(summary.basis.atoms[is_row], X[positions[is_row]])
    assert np.all(summary.atom_stats.origins < len(X))
    assert np.all(summary.atom_stats.weight_since_admission <= summary.total_weight * (1 + 1e-9))


@pytest.fixture
def moves(monkeypatch):
    """Whether the sample held all rows, and whether any atom moved, at every move."""
    seen = []
    move = step.move_atoms

    def spy(summary):
        later = move(summary)
        holds_all = not summary.selection_sample.is_full
        seen.append((holds_all, not np.array_equal(later.basis.atoms, summary.basis.atoms)))
        return later

    for module in (step, transitions):
        monkeypatch.setattr(module, "move_atoms", spy)
    return seen


def test_these_streams_move_atoms_before_and_after_their_samples_overflow(moves):
    for seed, max_atoms in product(range(6), (1, 2, 3)):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(160, 2)) + 4.0 * np.linspace(0.0, 1.0, 160)[:, None] * rng.normal(size=2)
        model = streaming_model(2, kernel=RBF(0.5), max_atoms=max_atoms, block_size=8).partial_fit(X)
        assert_sound(model, X)
    assert moves.count((True, True)) >= 10
    assert moves.count((False, True)) >= 4
    # Moves follow the searches, whose distances double.
    assert len(moves) < 18 * 10
    before = len(moves)
    streaming_model(2, kernel=RBF(0.5), max_atoms=5, atoms="rows", block_size=8).partial_fit(X)
    streaming_model(2, kernel=RBF(0.5), max_atoms=None, tolerance=0.01, block_size=8).partial_fit(X)
    assert len(moves) == before


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.Custom(lambda X, Y: np.exp(-0.3 * np.abs(X[:, None] - Y[None]).sum(axis=2))),
        kernels.Sigmoid(0.05, coef0=0.2),
    ],
    ids=["custom", "indefinite"],
)
@pytest.mark.filterwarnings("ignore:the kernel is not positive definite")
def test_atoms_of_kernels_without_derivatives_or_a_least_value_stay_rows(kernel):
    X = np.random.default_rng(0).normal(size=(200, 2))
    model = StreamingKernelPCA(2, kernel=kernel, max_atoms=5, block_size=8).partial_fit(X).refit()
    rows_only = StreamingKernelPCA(2, kernel=kernel, max_atoms=5, atoms="rows", block_size=8).partial_fit(X).refit()
    assert_sound(rows_only, X)
    for one in (
        model,
        rows_only,
        copy.deepcopy(model).fit(X),
        ApproximateKernelPCA(2, kernel=kernel, max_atoms=5).fit(X),
    ):
        np.testing.assert_array_equal(one.atoms_, X[one.atom_rows_])


@given(st.data(), drifting_rows(), kernel_cases(), settings_of_moves() | budgets(), HALF_LIVES, st.booleans())
def test_energy_is_conserved_and_bounds_are_true_across_moves(data, X, case, settings, half_life, center):
    drawn = data.draw(weights_for(len(X)))
    weights, factor = np.ones(len(X)) if drawn is None else drawn, data.draw(st.sampled_from([1.0, 0.25]))
    noise_variance, axes = data.draw(st.sampled_from([(None, "ritz"), ("auto", "ritz"), ("auto", "likelihood")]))
    settings = {**settings, "noise_variance": noise_variance, "axes": axes, "half_life": half_life, "center": center}
    model = StreamingKernelPCA(3, kernel=case.kernel, **settings)
    middle = data.draw(st.integers(1, len(X) - 1))
    model.partial_fit(X[:middle], sample_weight=weights[:middle]).forget(factor)
    model.partial_fit(X[middle:], sample_weight=weights[middle:]).refit()
    a = weights * (1.0 if half_life is None else 2.0 ** (-np.arange(len(X))[::-1] / half_life))
    a[:middle] *= factor
    summary = stream_of(model)
    assert_energy_is_conserved(summary)
    assert_sound(model, X)
    assert summary.moments.energy == pytest.approx(a @ case.kernel.diagonal(X), rel=1e-9)
    assert model.total_weight_ == pytest.approx(a.sum(), rel=1e-9)
    exact = KernelPCA(3, kernel=case.kernel, center=center).fit(X, sample_weight=a).eigenvalues_
    low, high = model.eigenvalue_bounds_.T
    q = min(len(exact), len(low))
    assert np.all(low[:q] <= exact[:q])
    assert np.all(exact[:q] <= high[:q])
    # Nothing is recorded that is not explained: the span holds at least what the account says.
    energy = a @ case.kernel.diagonal(X)
    low_share, high_share = model.captured_energy()
    truth = 1.0 - a @ model.reconstruction_error(X) / energy
    rounding = 1e-9 + summary.moments.losses.rounding / energy
    assert low_share - rounding <= truth <= high_share + rounding


# Both passes of fit


@given(st.data(), rows(max_rows=90), kernel_cases(), settings_of_moves())
def test_fit_records_every_row_in_the_moved_atoms(data, X, case, settings):
    weights = data.draw(weights_for(len(X)))
    a = np.ones(len(X)) if weights is None else weights
    model = streaming_model(2, kernel=case.kernel, **settings).fit(X, sample_weight=weights)
    assert model.n_samples_seen_ == len(X)
    assert model.n_atoms_ <= settings["max_atoms"]
    assert_sound(model, X)
    if model.state_.summary.basis.size:
        assert not (a[model.atom_origins_] == 0.0).any()
    summary = model.state_.summary
    energy = a @ case.kernel.diagonal(X)
    assert summary.moments.losses.by_removal == 0.0
    rounding = (1e-9 + summary.basis.rounding_amplification) * energy
    assert summary.moments.losses.total == pytest.approx(a @ model.reconstruction_error(X), abs=rounding)
    again = StreamingKernelPCA.from_bytes(model.to_bytes())
    assert again.to_bytes() == model.to_bytes()
    assert again.partial_fit(X).to_bytes() == model.partial_fit(X).to_bytes()


@pytest.mark.parametrize("n", [1, 2, 5, 19, 31])
def test_fit_needs_no_whole_block(n):
    X = np.random.default_rng(0).normal(size=(n, 2))
    model = streaming_model(2, kernel=RBF(0.5), max_atoms=4, block_size=32).fit(X)
    assert model.n_atoms_ == min(n, 4)
    assert model.n_samples_seen_ == model.total_weight_ == n
    assert (min(model.atom_rows_) == -1) == (n >= 16)
    assert_sound(model, X)
    if n <= 4:
        np.testing.assert_allclose(model.reconstruction_error(X), 0.0, atol=1e-9)


@pytest.mark.usefixtures("usual_samples")
def test_fit_does_not_depend_on_how_rows_are_sorted():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(200, 2)) + centre for centre in ([0, 0], [6, 0], [0, 6], [6, 6])])
    orders = [np.arange(800), np.arange(800)[::-1], rng.permutation(800), np.argsort(X[:, 0])]
    left = [
        streaming_model(2, kernel=RBF(0.3), max_atoms=16, block_size=50).fit(X[order]).unexplained_energy_ratio_
        for order in orders
    ]
    assert max(left) < 1.2 * min(left)


@pytest.mark.usefixtures("usual_samples")
@pytest.mark.parametrize("half_life", [None, 100.0])
def test_fit_explains_more_with_atoms_that_move(half_life):
    X = np.random.default_rng(0).normal(size=(500, 3))
    moved, still = (
        streaming_model(2, kernel=RBF(0.3), max_atoms=15, atoms=atoms, block_size=50, half_life=half_life).fit(X)
        for atoms in ("moved", "rows")
    )
    assert moved.unexplained_energy_ratio_ < 0.95 * still.unexplained_energy_ratio_
    assert np.all(moved.atom_rows_ == -1)
