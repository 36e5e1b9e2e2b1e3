"""Constructor parameters; projections as arrays and tables."""

import sys

import numpy as np
import pytest

from streamkpca import ApproximateKernelPCA, KernelPCA, SparseKernelPCA, StreamingKernelPCA
from streamkpca.errors import SparsityError
from streamkpca.kernels import RBF, Linear, Matern, Polynomial

ROWS = np.random.default_rng(0).normal(size=(60, 3))
ESTIMATORS = [StreamingKernelPCA, KernelPCA, SparseKernelPCA, ApproximateKernelPCA]


def test_parameters_of_kernels_are_parameters():
    model = KernelPCA(3, kernel=2.0 * RBF(0.5) + Polynomial(2).on([0, 1]))
    params = model.get_params()
    assert params["kernel__left__scale"] == 2.0
    assert params["kernel__left__kernel__gamma"] == 0.5
    assert params["kernel__right__kernel__degree"] == 2
    assert params["kernel__right__columns"] == (0, 1)
    assert set(model.get_params(deep=False)) == {"n_components", "kernel", "center"}
    model.set_params(kernel__left__kernel__gamma=0.1, kernel__right__kernel__coef0=0.0, n_components=2)
    assert model.kernel == 2.0 * RBF(0.1) + Polynomial(2, coef0=0.0).on([0, 1])
    assert model.n_components == 2


def test_a_kernel_and_its_parameters_can_be_set_at_once_and_by_name():
    model = StreamingKernelPCA()
    assert model.set_params(kernel__gamma=0.5).kernel == RBF(0.5)
    assert model.set_params(kernel=Matern(2.5), kernel__length_scale=3.0).kernel == Matern(2.5, length_scale=3.0)
    assert model.set_params(kernel__length_scale=2.0, kernel="matern").kernel == Matern(1.5, length_scale=2.0)


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        (
            {"gamma": 1.0},
            ValueError,
            r"KernelPCA\.set_params: 'gamma' is a parameter of kernels; pass it within one: kernel=RBF\(gamma=1\.0\)",
        ),
        ({"kernel__degree": 2}, ValueError, r"set_params: the kernel RBF.* has no parameter 'degree'; it has gamma"),
        ({"kernel__gamma__x": 2}, ValueError, "has no parameter 'gamma__x'"),
        ({"kernel__gamma": -1.0}, ValueError, "gamma must be a finite number"),
        ({"center__x": 1}, ValueError, "center=True has no parameter 'x'; only kernels have them"),
        ({"kernel": 3, "kernel__gamma": 1.0}, ValueError, "kernel=3 has no parameter 'gamma'"),
        ({"kernel": "rbff", "kernel__gamma": 1.0}, ValueError, "kernel must be a Kernel, one of"),
    ],
)
def test_nothing_is_set_where_anything_is_wrong(params, error, message):
    model = KernelPCA(5, kernel=RBF(0.5))
    with pytest.raises(error, match=message):
        model.set_params(n_components=3, **params)
    assert model.get_params(deep=False) == {"n_components": 5, "kernel": RBF(0.5), "center": True}


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ({"gamma": 0.1}, r"pass it within one: kernel=RBF\(gamma=0\.1\)"),
        ({"kernel": "poly", "gamma": 0.1}, r"kernel=Polynomial\(gamma=0\.1\)"),
        ({"kernel": Matern(2.5), "length_scale": 3.0}, r"kernel=Matern\(length_scale=3\.0\)"),
        ({"kernel": 2.0 * Linear(), "degree": 2}, r"kernel=Polynomial\(degree=2\)"),
        (
            {"n_component": 3},
            r"'n_component' is not a parameter; did you mean 'n_components'\? the parameters are ",
        ),
        ({"eigen_solver": "auto"}, "'eigen_solver' is not a parameter; the parameters are n_components, "),
    ],
)
def test_unknown_arguments_are_refused_with_what_to_write_instead(arguments, advice):
    for kind in ESTIMATORS:
        with pytest.raises(TypeError, match=f"^{kind.__name__}: .*{advice}"):
            kind(**arguments)


@pytest.mark.parametrize(
    ("kind", "options", "error", "message"),
    [
        (SparseKernelPCA, {"optimizer": "newton"}, ValueError, "optimizer must be one of 'coordinate', 'fixed_"),
        (SparseKernelPCA, {"optimizer": None}, TypeError, "optimizer must be one of"),
        (SparseKernelPCA, {"noise_variance": 1e-30}, SparsityError, "noise_variance=1e-30 is below .*, the rounding"),
        (SparseKernelPCA, {"n_active": 3, "noise_variance": 0.1}, ValueError, "both decide"),
        (SparseKernelPCA, {"kernel": RBF(0.3).on(7)}, ValueError, "uses column 7 but got rows with 3 features"),
        (ApproximateKernelPCA, {"max_atoms": 0}, ValueError, "max_atoms must be at least 1"),
        (ApproximateKernelPCA, {"atoms": "fixed"}, ValueError, "atoms must be one of 'moved', 'rows', got 'fixed'"),
        (ApproximateKernelPCA, {"criterion": "best"}, ValueError, "criterion must be one of 'residual', 'original'"),
        (ApproximateKernelPCA, {"n_candidates": 0}, ValueError, "n_candidates must be at least 1"),
        (ApproximateKernelPCA, {"tolerance": 1.0}, ValueError, r"tolerance must be a finite number in \[0, 1\)"),
        (ApproximateKernelPCA, {"random_state": -1}, ValueError, "random_state must be at least 0"),
    ],
)
def test_a_fit_that_is_refused_leaves_the_model_of_the_last(kind, options, error, message):
    model = kind(3, kernel=RBF(0.3)).fit(ROWS)
    before = model.transform(ROWS)
    with pytest.raises(error, match=message) as caught:
        model.set_params(**options).fit(ROWS)
    assert str(caught.value).startswith(f"{kind.__name__}.fit: ") or error is SparsityError
    np.testing.assert_array_equal(model.transform(ROWS), before)
    assert model.active_.any()


# Containers of projections


def test_unknown_containers_are_refused():
    with pytest.raises(
        ValueError, match=r"set_output: transform must be one of 'default', 'pandas', 'polars', got 'arrow'"
    ):
        KernelPCA().set_output(transform="arrow")


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_missing_library_names_its_extra(library, monkeypatch):
    model = KernelPCA(2).fit(ROWS).set_output(transform=library)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf"needs {library}; pip install 'streamkpca\[{library}\]'"):
        model.transform(ROWS)
