"""Extreme inputs give finite answers or a clear refusal; never NaN, never a stray warning."""

from contextlib import contextmanager

import numpy as np
import pytest

from streamkpca import ApproximateKernelPCA, KernelPCA, SparseKernelPCA, StreamingKernelPCA
from streamkpca.kernels import RBF, Cosine, Laplacian, Linear, Matern, Polynomial, RationalQuadratic

RNG = np.random.default_rng(0)
BASE = RNG.normal(size=(60, 3))
EVEN = (np.arange(60) % 2 == 0)[:, None]

ROWS = {
    "plain": BASE,
    "one": BASE[:1],
    "two": BASE[:2],
    "narrow": BASE[:, :1],
    "wide": RNG.normal(size=(60, 100)),
    "duplicates": np.tile(BASE[:1], (60, 1)),
    "pairs": np.repeat(BASE[:30], 2, axis=0),
    "zeros": np.zeros((60, 3)),
    "wide-zeros": np.zeros((60, 12)),
    "half-zeros": np.where(EVEN, 0.0, BASE),
    "constant-columns": BASE * [1.0, 0.0, 0.0] + [0.0, 7.0, -7.0],
    "booleans": (BASE > 0.0).astype(float),
    "tiny": BASE * 1e-200,
    "subnormal": BASE * 1e-310,
    "large": BASE * 1e100,
    "huge": BASE * 1e150,
    "overflowing": BASE * 1e200,
    "largest": np.sign(BASE) * 1.7e308,
    "offset": BASE + 1e6,
    "far-offset": BASE + 1e12,
    "alternating": BASE * np.where(EVEN, 1e8, 1e-8),
    "wildly-alternating": BASE * np.where(EVEN, 1e150, 1e-150),
    "zeros-then-rows": np.vstack([np.zeros((30, 3)), BASE]),
    "constant-then-spread": np.vstack([np.ones((30, 3)), BASE * 1e5]),
    "tiny-then-plain": np.vstack([BASE * 1e-150, BASE]),
    "plain-then-tiny": np.vstack([BASE, BASE * 1e-150]),
    "geometric": BASE * (10.0 ** np.linspace(-30, 30, 60))[:, None],
}
KERNELS = {
    "rbf": RBF(),
    "spread": RBF("spread"),
    "narrowest": RBF(1e300),
    "widest": RBF(1e-300),
    "linear": Linear(),
    "cosine": Cosine(),
    "polynomial": Polynomial(),
    "high-degree": Polynomial(9, gamma=1.0),
    "laplacian": Laplacian(),
    "matern": Matern(),
    "rational": RationalQuadratic(),
    "sum": RBF(1.0) + 1e-3 * Linear(),
    "exponential": Linear().exp(),
    "small": 1e-200 * RBF(1.0),
    "large": 1e200 * RBF(1.0),
    "range": RBF().in_units("range"),
    "deviation": Linear().in_units("std"),
    "units": (RBF("spread") + 1e-3 * Linear()).in_units([1e-120, 1.0, 1e120]),
}
SETTINGS = {
    "default": {},
    "smallest-block": {"block_size": 2},
    "one-atom": {"block_size": 2, "max_atoms": 1},
    "budget": {"block_size": 16, "max_atoms": 5},
    "strict-budget": {"block_size": 16, "max_atoms": 5, "tolerance": 0.0, "n_components": 0.9},
    "exact": {"block_size": 16, "max_atoms": None, "tolerance": 0.0},
    "tolerance": {"block_size": 16, "max_atoms": None, "noise_variance": None},
    "uncentred": {"block_size": 16, "max_atoms": 3, "center": False, "refit_every": 1},
}


@contextmanager
def about(*case):
    """Add the case to the error's text."""
    try:
        yield
    except (Exception, Warning) as error:
        error.add_note("case: " + ", ".join(map(str, case)))
        raise


def assert_finite(model, rows):
    answers = {
        "transform": model.transform(rows),
        "reconstruction_error": model.reconstruction_error(rows),
        "reconstruction_error, 0": model.reconstruction_error(rows, 0),
        "eigenvalues_": model.eigenvalues_,
        "explained_variance_ratio_": model.explained_variance_ratio_,
    }
    assert {name for name, answer in answers.items() if not np.isfinite(answer).all()} == set()
    assert np.all(model.eigenvalues_ >= 0.0)
    assert np.all(model.reconstruction_error(rows) >= 0.0)


def streamed(model, rows, weights=None, step=13):
    """Learn in small calls, query after each, and check that a refusal changes nothing."""
    weights = np.ones(len(rows)) if weights is None else weights
    for i in range(0, len(rows), step):
        part = slice(i, i + step)
        if not weights[part].any():
            continue
        before = model.to_bytes()
        try:
            model.partial_fit(rows[part], sample_weight=weights[part])
        except ValueError as error:
            assert_refusal(error)
            assert model.to_bytes() == before
            return False
        try:
            assert_finite(model, rows)
        except ValueError as error:
            assert_refusal(error)
            return False
        assert np.isfinite(model.unexplained_energy_ratio_)
    return True


def assert_refusal(error):
    """Check that an error is the library's own, with place and remedy, and not one of numpy."""
    assert not isinstance(error, np.linalg.LinAlgError)
    assert ";" in str(error)
    assert ":" in str(error)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.filterwarnings("ignore::streamkpca.errors.SparsityWarning")
def test_streams_end_in_finite_answers_or_a_refusal(rows):
    # Kernels and settings take turns; every kernel meets every kind of rows in streams or batches.
    place = list(ROWS).index(rows)
    for i, kernel in enumerate(list(KERNELS)[place % 3 :: 3]):
        settings = list(SETTINGS)[(place + 3 * i) % len(SETTINGS)]
        model = StreamingKernelPCA(**({"n_components": 4, "kernel": KERNELS[kernel]} | SETTINGS[settings]))
        with about(kernel, settings):
            if streamed(model, ROWS[rows]):
                assert_finite(model.refit(), ROWS[rows])


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.filterwarnings("ignore::streamkpca.errors.SparsityWarning")
def test_batches_end_in_finite_answers_or_a_refusal(rows):
    batches = [KernelPCA(4), SparseKernelPCA(4), SparseKernelPCA(4, axes="likelihood"), ApproximateKernelPCA(4)]
    place = list(ROWS).index(rows)
    for i, kernel in enumerate(kernel for j, kernel in enumerate(KERNELS) if j % 3 != place % 3):
        model = batches[(place + i) % 4]
        with about(model, kernel):
            try:
                assert_finite(model.set_params(kernel=KERNELS[kernel]).fit(ROWS[rows]), ROWS[rows])
            except ValueError as error:
                assert_refusal(error)


# None of these is beyond float64, so a refusal would be wrong.
@pytest.mark.parametrize(
    "rows", sorted(ROWS.keys() - {"overflowing", "largest", "huge", "wildly-alternating", "large"})
)
@pytest.mark.filterwarnings("ignore::streamkpca.errors.SparsityWarning")
def test_what_float64_can_hold_is_not_refused(rows):
    kernels, place = ("rbf", "spread", "cosine", "laplacian", "matern", "rational", "sum"), list(ROWS).index(rows)
    for kernel, settings in ((kernels[place % 7], "budget"), (kernels[(place + 3) % 7], "exact")):
        model = StreamingKernelPCA(**({"n_components": 4, "kernel": KERNELS[kernel]} | SETTINGS[settings]))
        with about(kernel, settings):
            assert_finite(model.fit(ROWS[rows]), ROWS[rows])
        assert model.n_samples_seen_ == len(ROWS[rows])


WEIGHTS = {
    "smallest": np.full(60, 5e-324),
    "tiny": np.full(60, 1e-300),
    "small": np.full(60, 1e-160),
    "large": np.full(60, 1e160),
    "huge": np.full(60, 1e300),
    "largest": np.full(60, 1e308),
    "mixed": np.where(EVEN[:, 0], 1e300, 1e-300),
    "less-mixed": np.where(EVEN[:, 0], 1e100, 1e-100),
    "heavy-first": np.r_[1e20, np.ones(59)],
    "heavy-last": np.r_[np.ones(59), 1e20],
    "zero-last": np.r_[np.ones(20), np.zeros(40)],
    "zero-first": np.r_[np.zeros(40), np.ones(20)],
    "only-the-last": np.r_[np.zeros(59), 1.0],
    "only-the-first": np.r_[1.0, np.zeros(59)],
}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.filterwarnings("ignore::streamkpca.errors.SparsityWarning")
def test_weights_end_in_finite_answers_or_a_refusal(weights):
    place = list(WEIGHTS).index(weights)
    for i, (kernel, step) in enumerate([("rbf", 7), ("linear", 60), ("rbf", 60), ("linear", 7)]):
        settings = list(SETTINGS)[(place + 3 * i) % len(SETTINGS)]
        model = StreamingKernelPCA(**({"n_components": 4, "kernel": KERNELS[kernel]} | SETTINGS[settings]))
        with about(kernel, settings, step):
            if streamed(model, BASE, WEIGHTS[weights], step=step):
                assert_finite(model.refit(), BASE)


@pytest.mark.parametrize(
    ("scale", "settings"), [(1e-200, "budget"), (1e-30, "exact"), (1e100, "tolerance"), (1e138, "budget")]
)
def test_a_scaled_kernel_scales_the_answers(scale, settings):
    options = {"n_components": 4} | SETTINGS[settings]
    plain = StreamingKernelPCA(kernel=RBF(0.5), **options).fit(BASE)
    model = StreamingKernelPCA(kernel=scale * RBF(0.5), **options).fit(BASE)
    np.testing.assert_array_equal(model.atom_rows_, plain.atom_rows_)
    np.testing.assert_allclose(model.eigenvalues_ / scale, plain.eigenvalues_, rtol=1e-8)
    np.testing.assert_allclose(model.score_samples(BASE) / scale, plain.score_samples(BASE), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(np.abs(model.transform(BASE)) / scale**0.5, np.abs(plain.transform(BASE)), atol=1e-8)


def test_a_kernel_scaled_beyond_the_range_of_squares_is_refused():
    for make in (KernelPCA, SparseKernelPCA, ApproximateKernelPCA, StreamingKernelPCA):
        with pytest.raises(ValueError, match=r"limit is 1e\+139; scale the features down") as refused:
            make(4, kernel=1e140 * RBF(0.5)).fit(BASE)
        assert_refusal(refused.value)
