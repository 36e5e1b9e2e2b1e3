"""Every state that a stream can reach is saved and loaded: the checks on loading are never too strict."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import generators, rows

from streamkpca import StreamingKernelPCA, kernels
from streamkpca.errors import IndefiniteKernelWarning, SparsityWarning

KERNELS = [
    "rbf", "laplacian", "linear", "cosine", kernels.RBF("spread"), kernels.RBF(0.3), kernels.RBF(1e-12),
    kernels.RBF(1e12),
    kernels.Linear(), kernels.Polynomial(3, gamma=1.0, coef0=1.0), kernels.Polynomial(2, gamma=0.1, coef0=0.0),
    kernels.Sigmoid(gamma=0.5, coef0=-1.0), kernels.Sigmoid(gamma=2.0, coef0=0.3),
    kernels.Matern(0.5, length_scale=0.1),
    kernels.RationalQuadratic(0.7, length_scale=3.0), 1e-30 * kernels.RBF(0.5),
    1e30 * kernels.RBF(0.5) + kernels.Linear(),
    kernels.Linear() ** 2 * kernels.RBF("spread"),
]  # fmt: skip


def assert_comes_back(model):
    data = model.to_bytes()
    assert StreamingKernelPCA.from_bytes(data).to_bytes() == data


@st.composite
def weights(draw, n):
    """Weights from the least to the largest that are taken, alone and side by side."""
    kind = draw(st.sampled_from(["none", "none", "uniform", "zeros", "some zeros", "least", "largest", "all scales"]))
    rng = draw(generators())
    simple = {"none": None, "zeros": 0.0, "least": 1e-100, "largest": 1e100, "uniform": rng.uniform(0.1, 3.0, n)}
    if kind in simple:
        return simple[kind]
    if kind == "some zeros":
        return rng.uniform(0.1, 3.0, n) * (rng.uniform(size=n) < 0.5)
    return 10.0 ** rng.uniform(-100, 100, n)


def refused_or_done(act):
    """Call a function, which may refuse by a message, for example rows outside a kernel's range."""
    try:
        act()
    except ValueError as error:
        if not any(
            word in str(error)
            for word in ("limit is", "expected", "cannot", "must", "zero for every", "pass at least one")
        ):
            raise


@given(st.data())
@pytest.mark.filterwarnings("ignore::streamkpca.errors.IndefiniteKernelWarning")
@pytest.mark.filterwarnings("ignore::streamkpca.errors.SparsityWarning")
def test_every_state_is_saved_and_loaded(data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IndefiniteKernelWarning)
        warnings.simplefilter("ignore", SparsityWarning)
        drawn = data.draw
        settings = {
            "kernel": drawn(st.sampled_from(KERNELS)),
            "max_atoms": drawn(st.sampled_from([None, 1, 2, 5, 12])),
            "tolerance": drawn(st.sampled_from([0.0, 1e-9, 1e-3, 0.2])),
            "block_size": drawn(st.sampled_from([2, 3, 8, 16, 40])),
            "half_life": drawn(st.sampled_from([None, None, 1e-3, 0.5, 3.0, 50.0, 1e9])),
            "reservoir_size": drawn(st.sampled_from([0, 1, 5, 30])),
            "refit_every": drawn(st.sampled_from(["auto", 1, 20, 1000])),
            "noise_variance": drawn(st.sampled_from(["auto", "auto", None, 1e-3, 0.5])),
            "axes": drawn(st.sampled_from(["ritz", "ritz", "likelihood"])),
            "center": drawn(st.booleans()),
            "missing": drawn(st.sampled_from(["raise", "skip"])),
        }
        if settings["axes"] == "likelihood" and settings["noise_variance"] is None:
            settings["noise_variance"] = "auto"
        model = StreamingKernelPCA(drawn(st.sampled_from([1, 3, 0.9])), **settings)
        X = drawn(rows(max_rows=90))
        start = 0
        for _ in range(drawn(st.integers(1, 8))):
            act = drawn(st.sampled_from(["learn"] * 6 + ["forget", "refit", "merge", "fit", "budget", "settled"]))
            size = drawn(st.integers(1, 60))
            piece = np.take(X, np.arange(start, start + size), axis=0, mode="wrap")
            start += size
            if settings["missing"] == "skip" and drawn(st.booleans()):
                piece[len(piece) // 2] = np.nan
            weight = drawn(weights(size))
            if act == "learn":
                refused_or_done(lambda: model.partial_fit(piece, sample_weight=weight))  # noqa: B023
            elif act == "fit":
                refused_or_done(lambda: model.fit(piece, sample_weight=weight))  # noqa: B023
            elif act == "forget":
                model.forget(drawn(st.sampled_from([1.0, 0.5, 1e-10, 1e-100, 1e-300, 5e-324])))
            elif act == "refit" and model.__sklearn_is_fitted__():
                model.refit()
            elif act == "budget":
                model.set_params(max_atoms=drawn(st.sampled_from([None, 1, 3, 20])))
            elif act in ("merge", "settled"):
                other = StreamingKernelPCA(**model.get_params(deep=False))
                if act == "settled" and model.__sklearn_is_fitted__():
                    other.set_params(kernel=model.kernel_)
                refused_or_done(lambda: other.partial_fit(piece, sample_weight=weight))  # noqa: B023
                refused_or_done(lambda: model.merge(other))  # noqa: B023
            assert_comes_back(model)
            if model.__sklearn_is_fitted__():
                assert np.isfinite(model.transform(X)).all()


def test_sums_that_fade_below_the_smallest_numbers_are_loaded():
    """A kernel of 1e-30 has products of values of 1e-60, rows fade to 1e-150, and the second is far from the atom."""
    X = np.repeat([[0.0], [15.84], [15.84]], 2, axis=0)
    model = StreamingKernelPCA(1, kernel=1e-30 * kernels.RBF(0.5), max_atoms=1, block_size=2, half_life=1e-3)
    assert_comes_back(model.partial_fit(X))


@pytest.mark.parametrize(
    "kernel", [kernels.RBF(0.3), kernels.RBF(), kernels.Matern() + kernels.Laplacian(2.0)], ids=repr
)
def test_kernels_too_large_for_any_row_are_refused_with_the_first(kernel):
    """Otherwise rows would wait for a block that can never be learned, and the saved model could not be loaded."""
    for large in (kernel.exp().exp().exp().exp(), 1e140 * kernel, kernel**2 * (1e70 * kernel) ** 2):
        model = StreamingKernelPCA(2, kernel=large, block_size=64)
        with pytest.raises(ValueError, match=r"k\(x, x\) is .* but the limit is"):
            model.partial_fit(np.random.default_rng(0).normal(size=(5, 2)))
        assert not model.__sklearn_is_fitted__()
        assert_comes_back(model)
    fine = StreamingKernelPCA(2, kernel=1e130 * kernel, block_size=64).partial_fit(np.zeros((5, 2)))
    assert_comes_back(fine)


def test_streams_that_forget_every_row_but_the_last_come_back():
    """Their weights fade below the range of numbers, of some parts sooner than of others."""
    for seed in range(12):
        random = np.random.default_rng(seed)
        X = random.normal(size=(50, 1))
        weights = (random.random(50) > 0.4).astype(float)
        model = StreamingKernelPCA(
            2,
            kernel=[kernels.RBF(0.3), kernels.Linear()][seed % 2],
            half_life=[0.01, 0.003, 0.001][seed % 3],
            block_size=[40, 2, 16][seed % 3],
            max_atoms=[5, 1, None][seed // 3 % 3],
            reservoir_size=30,
        )
        (model.fit if seed % 4 else model.partial_fit)(X, sample_weight=weights)
        assert_comes_back(model)
        assert_comes_back(model.partial_fit(X[:7]))


@pytest.mark.filterwarnings("ignore::streamkpca.errors.IndefiniteKernelWarning")
@pytest.mark.parametrize("noise_variance", ["auto", 1e-3, None])
def test_a_stream_of_rows_of_negative_energy_answers_without_atoms(noise_variance):
    kernel = kernels.Sigmoid(gamma=0.5, coef0=-1.0)
    model = StreamingKernelPCA(1, kernel=kernel, noise_variance=noise_variance, center=False, block_size=2)
    for row in ([0.1], [0.2], [0.3]):
        model.partial_fit([row])
        assert model.n_atoms_ == 0
        assert model.transform([[0.1]]).shape[0] == 1
        assert_comes_back(model)


def test_atoms_stay_where_weights_that_have_nearly_faded_give_no_direction():
    """Warnings are errors here: the inverse of such a curvature leaves the range of numbers."""
    X = np.array([[20.0, 10.0, 0.0], [-10.0, -10.0, -0.2], [-20.0, -20.0, -0.2], [20.0, 10.0, 0.2]])
    model = StreamingKernelPCA(
        1, kernel=kernels.Matern(0.5, length_scale=0.1), max_atoms=1, tolerance=0.0, block_size=2, half_life=1e-3
    )
    model.partial_fit(np.tile(X, (2, 1)))
    assert np.isfinite(model.atoms_).all()
    assert_comes_back(model)
