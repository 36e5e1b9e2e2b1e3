"""Kernels of rows in units: their values, how units are settled, and what stays the same."""

import contextlib
import math
import pickle
import warnings

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from strategies import FEWER

from streamkpca import ApproximateKernelPCA, KernelPCA, SparseKernelPCA, StreamingKernelPCA
from streamkpca.aggregate import Aggregate
from streamkpca.components import preimages
from streamkpca.kernels import (
    RBF,
    Cosine,
    Custom,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
)

UNITS = np.array([1.0, 0.003, 700.0, 12.5])
# They change no row, and let a kernel divide rows as it does with other units: the same operations, the same bits.
ONES = np.ones(4)
KERNELS: list[Kernel] = [
    RBF(0.5),
    Laplacian(0.5),
    Matern(1.5, length_scale=2.0),
    RationalQuadratic(0.7, length_scale=2.0),
    Linear(),
    Polynomial(2, gamma=0.5),
    Cosine(),
    Sigmoid(0.1),
    Custom(lambda X, Y: X @ Y.T),
    RBF(0.5).scaled_by(lambda X: 1.0 + X[:, 0] ** 2),
    RBF(0.5).on([0, 2]) * Linear() + 0.3 * Cosine().on([3, 1]) ** 2,
]
SETTLING: list[Kernel] = [
    RBF("spread"),
    RBF("scale"),
    RBF("median"),
    Laplacian("median"),
    Matern(2.5, length_scale="median"),
    Polynomial(2),
    Cosine(),
    RBF("median").on([0, 2]) + Linear(),
]


def rows_of(seed, n=200, d=4):
    return np.random.default_rng(seed).normal(size=(n, d)) * UNITS[:d]


def models(kernel, **atoms):
    """Make one model of each estimator; none draws rows at random."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            StreamingKernelPCA(2, kernel=kernel, block_size=50, tolerance=1e-2, random_state=0, **atoms),
            KernelPCA(2, kernel=kernel),
            SparseKernelPCA(2, kernel=kernel),
            ApproximateKernelPCA(2, kernel=kernel, max_atoms=15, **atoms),
        ]


# Values in units


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: repr(kernel).split(" at 0x")[0])
@pytest.mark.parametrize("shape", [(3, 5), (40, 60)], ids=str)
def test_values_are_those_of_rows_divided_by_units(kernel, shape):
    X, Y, in_units = rows_of(0, shape[0]), rows_of(1, shape[1]), kernel.in_units(UNITS)
    np.testing.assert_array_equal(in_units.matrix(X, Y), kernel.matrix(X / UNITS, Y / UNITS))
    np.testing.assert_array_equal(in_units.diagonal(X), kernel.diagonal(X / UNITS))
    # numpy multiplies a matrix with itself by SYRK, and two quotients of it by GEMM, and their sums may be rounded
    # differently: each inner product of d numbers by d eps / 2 of |x| |y| (Higham 2002, section 3.1). No kernel here
    # makes more than twice that of their difference, its degree, and two eps of its own on either side.
    eps = np.finfo(np.float64).eps
    largest = np.abs(kernel.diagonal(X / UNITS)).max()
    np.testing.assert_allclose(
        in_units.matrix(X), kernel.matrix(X / UNITS), rtol=0, atol=(2 * len(UNITS) + 4) * eps * largest
    )
    np.testing.assert_array_equal(in_units.matrix(X), kernel.in_units(ONES).matrix(X / UNITS))


def test_values_by_the_formula():
    X, Y = rows_of(0, 30), rows_of(1, 20)
    distances = [[sum(((a - b) / u) ** 2 for a, b, u in zip(x, y, UNITS, strict=True)) for y in Y] for x in X]
    np.testing.assert_allclose(RBF(0.3).in_units(UNITS).matrix(X, Y), np.exp(-0.3 * np.array(distances)), rtol=1e-13)


def test_many_features_far_from_the_origin():
    rng = np.random.default_rng(0)
    units = rng.uniform(0.1, 10.0, 40)
    X = (1e6 + rng.normal(size=(100, 40))) * units
    kernel = RBF(0.05)
    np.testing.assert_array_equal(kernel.in_units(units).matrix(X), kernel.matrix(X / units))


def test_units_are_those_of_the_inner_kernels_columns():
    X = rows_of(0, 20)
    inside = RBF(0.5).in_units([2.0, 3.0]).on([3, 1])
    outside = RBF(0.5).on([3, 1]).in_units([9.0, 3.0, 9.0, 2.0])
    np.testing.assert_array_equal(inside.matrix(X), RBF(0.5).matrix(X[:, [3, 1]] / [2.0, 3.0]))
    np.testing.assert_array_equal(outside.matrix(X), inside.matrix(X))


def test_units_of_units_multiply():
    X = rows_of(0, 20)
    twice = Laplacian(0.5).in_units([2.0, 4.0, 0.5, 1.0]).in_units(UNITS)
    np.testing.assert_array_equal(twice.matrix(X), Laplacian(0.5).in_units(UNITS * [2.0, 4.0, 0.5, 1.0]).matrix(X))


def test_units_inside_a_sum_are_their_own():
    X = rows_of(0, 20)
    mixed = Linear() + 2.0 * RBF(0.5).in_units(UNITS) + RBF(0.5)
    expected = X @ X.T + 2.0 * RBF(0.5).matrix(X / UNITS) + RBF(0.5).matrix(X)
    np.testing.assert_allclose(mixed.matrix(X), expected, rtol=1e-12)


def test_functions_of_the_caller_see_rows_in_units():
    seen = []

    def first(X):
        seen.append(X.copy())
        return X[:, 0]

    X = rows_of(0, 6)
    Linear().scaled_by(first).in_units(UNITS).diagonal(X)
    np.testing.assert_array_equal(seen[0], X / UNITS)
    Custom(lambda X, Y: X @ Y.T, diagonal=first).in_units(UNITS).diagonal(X)
    np.testing.assert_array_equal(seen[1], X / UNITS)


def test_units_keep_what_is_known_of_a_kernel():
    assert RBF().in_units("std").is_stationary
    assert RBF().in_units("std").is_positive_definite
    assert not Sigmoid().in_units("std").is_positive_definite
    assert not Linear().in_units("std").is_stationary
    assert not Custom(np.dot).in_units("std").is_compiled
    assert not RBF(1.0).in_units("std").is_settled
    assert not RBF("scale").in_units(UNITS).is_settled
    assert RBF(1.0).in_units(UNITS).is_settled


# Settling units


def test_range_and_deviation_of_each_feature():
    X = rows_of(0)
    assert RBF(1.0).in_units("range").settled(X) == RBF(1.0).in_units(X.max(axis=0) - X.min(axis=0))
    np.testing.assert_allclose(Linear().in_units("std").settled(X).units, X.std(axis=0), rtol=1e-13)


@pytest.mark.parametrize("rule", ["range", "std"])
def test_weights_are_copies_of_rows(rule):
    X, weights = rows_of(0, 20), np.random.default_rng(1).integers(0, 4, 20)
    weighted = RBF("scale").in_units(rule).settled(X, weights)
    copied = RBF("scale").in_units(rule).settled(np.repeat(X, weights, axis=0))
    np.testing.assert_allclose(weighted.units, copied.units, rtol=1e-13)
    np.testing.assert_allclose(weighted.kernel.gamma, copied.kernel.gamma, rtol=1e-12)


@pytest.mark.parametrize("rule", ["range", "std"])
def test_rows_of_weight_zero_settle_nothing(rule):
    X = rows_of(0, 20)
    far = np.vstack([X, 1e6 + X])
    weights = np.repeat([1.0, 0.0], 20)
    assert RBF().in_units(rule).settled(far, weights) == RBF().in_units(rule).settled(X)


@pytest.mark.parametrize("rule", ["range", "std"])
def test_constant_features_have_the_unit_one(rule):
    constants = np.array([0.0, -3.0, 1e300, 1e-300])
    X = np.tile(constants, (5, 1))
    assert Linear().in_units(rule)._settle(X, None).units == (1.0, 1.0, 1.0, 1.0)
    # Sums of the same numbers in another order.
    rounded = np.array([[0.1 + 0.2 + 0.3], [0.3 + 0.2 + 0.1]])
    assert rounded[0] != rounded[1]
    assert Linear().in_units(rule).settled(rounded).units == (1.0,)


@pytest.mark.parametrize("exponent", [-460, -300, 0, 200])
def test_deviations_do_not_depend_on_the_unit(exponent):
    X = rows_of(0)[:, :1]
    (unit,) = RBF(1.0).in_units("std").settled(X).units
    assert RBF(1.0).in_units("std").settled(X * 2.0**exponent).units == (unit * 2.0**exponent,)


def test_widths_are_settled_in_units():
    X = rows_of(0)
    settled = (RBF("scale") + Laplacian("median").on([0, 1])).in_units("range").settled(X)
    assert settled.kernel == (RBF("scale") + Laplacian("median").on([0, 1])).settled(X / np.array(settled.units))


def test_units_are_settled_on_the_columns_and_units_around_them():
    X = rows_of(0)
    chosen = Linear().in_units("range").on([2, 0]).settled(X)
    assert chosen.kernel.units == tuple(np.ptp(X[:, [2, 0]], axis=0).tolist())
    nested = Linear().in_units("range").in_units(UNITS).settled(X)
    assert nested.kernel.units == tuple(np.ptp(X / UNITS, axis=0).tolist())


def test_a_stream_settles_units_on_its_first_block_that_counts():
    X = rows_of(0, 120)
    weights = np.repeat([0.0, 1.0], [30, 90])
    model = StreamingKernelPCA(kernel=RBF().in_units("std"), block_size=30)
    for start in range(0, 120, 7):
        model.partial_fit(X[start : start + 7], sample_weight=weights[start : start + 7])
    assert model.kernel_ == RBF().in_units("std").settled(X[30:60])


def test_partitions_share_the_units_of_the_first_rows():
    X = rows_of(0)
    kernel = RBF("median").in_units("range")
    empty = Aggregate(StreamingKernelPCA(kernel=kernel).partial_fit(X[:64]))
    assert empty.zero().add(X[64:]).kernel_ == kernel.settled(X[:64])


# What stays the same


@pytest.mark.parametrize("kernel", SETTLING, ids=repr)
@pytest.mark.parametrize("units", ["range", "std", UNITS], ids=["range", "std", "numbers"])
def test_models_are_those_of_rows_divided_by_units(kernel, units):
    """Bit for bit beside units of one, as long as atoms are rows; pre-images up to rounding."""
    X, fresh = rows_of(0), rows_of(1, 25)
    of_all = np.array(kernel.in_units(units).settled(X).units)
    pairs = zip(models(kernel.in_units(units), atoms="rows"), models(kernel.in_units(ONES), atoms="rows"), strict=True)
    for model, plain in pairs:
        if isinstance(model, StreamingKernelPCA):
            # A stream settles on one, two and four blocks, and keeps a scale until another is clearly different. Units
            # change from one to the next, so the plain stream is given the scale that results.
            model.partial_fit(X)
            assert model.kernel_ in [kernel.in_units(units).settled(X[:n]) for n in (50, 100, 200)]
            divisors = np.array(model.kernel_.units)
            plain.set_params(kernel=model.kernel_.kernel.in_units(ONES)).partial_fit(X / divisors)
        else:
            divisors = of_all
            model.fit(X), plain.fit(X / divisors)
        assert model.kernel_ == plain.kernel_.kernel.in_units(divisors)
        for rows in (fresh, fresh[:1], X[:3]):
            np.testing.assert_array_equal(model.transform(rows), plain.transform(rows / divisors))
            np.testing.assert_array_equal(model.reconstruction_error(rows), plain.reconstruction_error(rows / divisors))
        if not isinstance(model, StreamingKernelPCA):
            # A stream also learns pre-images from rows drawn by their bytes.
            found, expected = (
                model.inverse_transform(model.transform(fresh)),
                plain.inverse_transform(plain.transform(fresh / divisors)),
            )
            # Fixed points stop where a step gains 1e-10, which is 1e-5 of a row: rounding may decide on one more step.
            np.testing.assert_allclose(found / divisors, expected, atol=1e-3)


@pytest.mark.parametrize("kernel", SETTLING, ids=repr)
@pytest.mark.parametrize("units", ["range", UNITS], ids=["range", "numbers"])
def test_atoms_move_as_they_do_among_rows_divided_by_units(kernel, units):
    """Up to rounding: gradients are divided by units, and second derivatives by their squares."""
    X, fresh = rows_of(0), rows_of(1, 25)
    divisors = np.array(kernel.in_units(units).settled(X).units)
    # A stream draws samples by the bytes of rows, and so moves by other rows. Four atoms would explain all cosines.
    model, plain = (ApproximateKernelPCA(2, kernel=kernel.in_units(unit), max_atoms=3) for unit in (units, ONES))
    model.fit(X), plain.fit(X / divisors)
    assert model.atom_origins_.tolist() == plain.atom_origins_.tolist()
    assert set(model.atom_rows_) == set(plain.atom_rows_) == {-1}
    np.testing.assert_allclose(model.atoms_ / divisors, plain.atoms_, atol=1e-6)
    scale = plain.reconstruction_error(fresh / divisors, 0).max()
    errors = plain.reconstruction_error(fresh / divisors)
    np.testing.assert_allclose(model.reconstruction_error(fresh), errors, atol=1e-7 * scale)


@pytest.mark.parametrize("kernel", [RBF("median"), Laplacian("spread"), Matern(1.5, length_scale=1.0)], ids=repr)
@FEWER
@given(
    exponents=arrays(int, 3, elements=st.integers(-30, 30)),
    shifts=arrays(int, 3, elements=st.integers(-1000, 1000)),
    rule=st.sampled_from(["range", "std"]),
)
def test_powers_of_two_and_shifts_change_nothing(kernel, exponents, shifts, rule):
    """Whole numbers make shifts exact; deviations are exact up to rounding, because their means are not."""
    X = np.random.default_rng(0).integers(-8, 9, size=(90, 3)).astype(float)
    moved = (X + shifts) * 2.0**exponents
    models = [StreamingKernelPCA(2, kernel=kernel.in_units(rule), block_size=30, tolerance=1e-2) for _ in range(2)]
    before, after = models[0].partial_fit(X).transform(X), models[1].partial_fit(moved).transform(moved)
    if rule == "range":
        # Only quotients are rounded, but their differences may be rounded differently after a shift.
        np.testing.assert_array_equal(models[1].kernel_.units, np.array(models[0].kernel_.units) * 2.0**exponents)
        if not shifts.any():
            np.testing.assert_array_equal(before, after)
    np.testing.assert_allclose(before, after, atol=1e-6)


def test_rows_kept_in_single_precision_are_divided_as_they_are_kept():
    X = rows_of(0)
    settings = {"block_size": 50, "tolerance": 1e-2, "dtype": "float32"}
    model = StreamingKernelPCA(2, kernel=RBF(0.5).in_units([1.0, 0.25, 512.0, 8.0]), **settings).partial_fit(X)
    plain = StreamingKernelPCA(2, kernel=RBF(0.5), **settings).partial_fit(X / [1.0, 0.25, 512.0, 8.0])
    np.testing.assert_array_equal(model.transform(X), plain.transform(X / [1.0, 0.25, 512.0, 8.0]))


def test_a_stream_agrees_with_all_rows_at_once():
    X = rows_of(0, 120)
    kernel = RBF("median").in_units("std")
    stream = StreamingKernelPCA(3, kernel=kernel, block_size=120, tolerance=0.0, noise_variance=None).partial_fit(X)
    exact = KernelPCA(3, kernel=kernel).fit(X)
    assert stream.kernel_ == exact.kernel_
    np.testing.assert_allclose(stream.eigenvalues_, exact.eigenvalues_, rtol=1e-6)
    np.testing.assert_allclose(np.abs(stream.transform(X)), np.abs(exact.transform(X)), atol=1e-6)


def test_the_fixed_point_of_views_in_different_units():
    """The gradient is zero: x_f sum_i c_i s_if = sum_i c_i s_if z_if with s_if = sum_p gamma_p k_p(x, z_i) / u_pf^2."""
    atoms, other = rows_of(0, 30), UNITS * [3.0, 1.0, 0.5, 2.0]
    parts = [RBF(0.2).in_units(UNITS), RBF(0.1).in_units(other), RBF(0.3).on([0, 1]).in_units(other)]
    precisions = [0.2 / UNITS**2, 0.1 / other**2, 0.3 / other**2 * [1.0, 1.0, 0.0, 0.0]]
    combinations = np.random.default_rng(1).uniform(0.1, 1.0, (5, 30))
    found, _ = preimages._iterated(parts[0] + parts[1] + parts[2], atoms, combinations, atoms[:5].copy())
    pulls = sum(
        (combinations * part.matrix(found, atoms))[:, :, None] * precision
        for part, precision in zip(parts, precisions, strict=True)
    )
    expected = (pulls * atoms).sum(axis=1) / pulls.sum(axis=1)
    np.testing.assert_allclose(found / UNITS, expected / UNITS, atol=1e-4)


# As values


@pytest.mark.parametrize("units", ["range", "std", UNITS, [1, 2.5], np.float32([0.1, 3.0])], ids=str)
def test_kernels_in_units_are_values(units):
    kernel = RBF("scale").in_units(units)
    assert kernel == RBF("scale").in_units(units)
    assert hash(kernel) == hash(RBF("scale").in_units(units))
    assert kernel != RBF("scale")
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    assert repr((2.0 * kernel + Linear()) ** 2) == f"(2.0 * {kernel!r} + Linear()) ** 2"


def test_units_are_parameters():
    model = StreamingKernelPCA(kernel=RBF().in_units("range"))
    assert model.get_params()["kernel__units"] == "range"
    assert model.get_params()["kernel__kernel__gamma"] == "contrast"
    model.set_params(kernel__units=np.array([1.0, 2.0]), kernel__kernel__gamma=0.5)
    assert model.kernel == RBF(0.5).in_units([1.0, 2.0])
    with pytest.raises(ValueError, match=r"the unit of feature 1 must be .* got nan"):
        model.set_params(kernel__units=[1.0, math.nan])
    assert clone(model).kernel == model.kernel == RBF(0.5).in_units([1.0, 2.0])


def test_a_search_over_units():
    X = rows_of(0, 90)
    search = GridSearchCV(KernelPCA(2, kernel=RBF().in_units("std")), {"kernel__units": ["range", "std", list(UNITS)]})
    assert search.fit(X).best_params_["kernel__units"] in ("range", "std", list(UNITS))
    assert len(set(search.cv_results_["mean_test_score"])) == 3


def test_a_checkpoint_goes_on_bit_for_bit():
    X = rows_of(0)
    for seen in (10, 100):
        model = StreamingKernelPCA(2, kernel=RBF("median").in_units("range"), block_size=50, random_state=0)
        model.partial_fit(X[:seen])
        copy = StreamingKernelPCA.from_bytes(model.to_bytes())
        assert copy.kernel == model.kernel
        np.testing.assert_array_equal(copy.partial_fit(X[seen:]).transform(X), model.partial_fit(X[seen:]).transform(X))
        assert copy.kernel_ == model.kernel_


def test_ten_thousand_units_are_kept():
    X = np.random.default_rng(0).normal(size=(12, 10_000)) * 1e-120
    kernel = RBF().in_units("std")
    model = StreamingKernelPCA(2, kernel=kernel + kernel, block_size=10).partial_fit(X)
    copy = StreamingKernelPCA.from_bytes(model.to_bytes())
    assert copy.kernel_ == model.kernel_
    np.testing.assert_array_equal(copy.transform(X), model.transform(X))


def test_only_models_of_the_same_units_merge():
    X, Y = rows_of(0, 60), 2.0 * rows_of(1, 60)
    first, second = (
        StreamingKernelPCA(2, kernel=RBF(0.5).in_units("range"), block_size=30).partial_fit(rows) for rows in (X, Y)
    )
    with pytest.raises(ValueError, match=r"expected a model with the kernel RBF.*in_units"):
        first.merge(second)
    shared = StreamingKernelPCA(2, kernel=first.kernel_, block_size=30).partial_fit(Y)
    assert first.merge(shared).n_samples_seen_ == 120


def test_models_that_have_not_settled_units_merge_into_one_that_settles_them_on_all_rows():
    X = rows_of(0, 100)
    first, second, whole = (
        StreamingKernelPCA(2, kernel=RBF().in_units("range"), block_size=100, random_state=0) for _ in range(3)
    )
    first.partial_fit(X[:40]).merge(second.partial_fit(X[40:]))
    assert first.kernel_ == whole.partial_fit(X).kernel_ == RBF().in_units("range").settled(X)
    np.testing.assert_array_equal(first.transform(X), whole.transform(X))


# Refusals


@pytest.mark.parametrize(
    ("units", "error", "message"),
    [
        (
            [1.0, 0.0],
            ValueError,
            r"in_units: the unit of feature 1 must be a finite number in \[1e-150, 1e\+150\], got 0.0",
        ),
        ([-1.0], ValueError, "the unit of feature 0 must be .* got -1.0"),
        ([math.nan], ValueError, "the unit of feature 0 must be .* got nan"),
        ([math.inf], ValueError, "the unit of feature 0 must be .* got inf"),
        ([10**400], ValueError, "the unit of feature 0 must be"),
        ([1e-200], ValueError, "the unit of feature 0 must be .* got 1e-200"),
        ([1.0, "2"], TypeError, "the unit of feature 1 must be a number, got '2'"),
        ([True], TypeError, "the unit of feature 0 must be a number, got True"),
        ([], ValueError, "at least one unit but got none"),
        (2.0, TypeError, "expected one positive number for each feature.*but got 2.0"),
        (np.array(2.0), TypeError, r"expected one positive number for each feature.*but got array\(2.\)"),
        (None, TypeError, "but got None"),
        ({1.0, 2.0}, TypeError, "expected one positive number for each feature"),
        ("iqr", ValueError, "in_units: units must be one of 'auto', 'range', 'std', 'whitened', got 'iqr'"),
    ],
)
def test_invalid_units_are_refused(units, error, message):
    with pytest.raises(error, match=message):
        RBF().in_units(units)


def test_there_must_be_one_unit_for_each_feature():
    with pytest.raises(ValueError, match=r"matrix: the kernel has units for 4 features but got rows with 3; .*\.on"):
        RBF(1.0).in_units(UNITS).matrix(np.ones((2, 3)))
    with pytest.raises(ValueError, match="on: the kernel has units for 4 features but got rows with 2"):
        RBF(1.0).in_units(UNITS).on([0, 1])
    with pytest.raises(ValueError, match="in_units: the kernel has units for 4 features but got rows with 2"):
        RBF(1.0).in_units(UNITS).in_units([1.0, 2.0])
    with pytest.raises(ValueError, match=r"in_units: the kernel .* uses column 2"):
        RBF(1.0).on([2]).in_units([1.0, 2.0])
    model = StreamingKernelPCA(kernel=RBF(1.0).in_units(UNITS))
    for learn in (model.partial_fit, model.fit):
        with pytest.raises(
            ValueError, match=rf"{learn.__name__}: the kernel has units for 4 features but got rows with 3"
        ):
            learn(np.ones((2, 3)))
    model = StreamingKernelPCA(kernel=RBF("spread").in_units(UNITS).on([0, 1, 2, 7]))
    for learn in (model.partial_fit, model.fit):
        with pytest.raises(ValueError, match=rf"{learn.__name__}: the kernel .* uses column 7 but got rows with 3"):
            learn(np.ones((2, 3)))


def test_units_of_units_stay_in_range():
    with pytest.raises(ValueError, match=r"the unit of feature 0 must be .* got 1e\+200"):
        RBF(1.0).in_units([1e100]).in_units([1e100])


@pytest.mark.parametrize("kernel", [RBF(1.0), RBF("scale"), Linear()], ids=repr)
def test_rows_beyond_the_range_of_units_change_nothing(kernel):
    X = np.random.default_rng(0).normal(size=(40, 2)) * [1e-120, 1.0]
    model = StreamingKernelPCA(1, kernel=kernel.in_units([1e-120, 1.0]), block_size=20)
    for before in (X[:5], X[5:]):
        model.partial_fit(before)
        state = model.to_bytes()
        with pytest.raises(ValueError, match=r"kernel: feature 0 .* is 1e\+100 .* 1e\+65; give in_units larger"):
            model.partial_fit([[1e-20, 0.0]])
        assert model.to_bytes() == state
    with pytest.raises(ValueError, match=r"InUnits\.matrix: feature 0"):
        kernel.in_units([1e-120, 1.0]).matrix(X, [[1e-20, 0.0]])
    for batch in (KernelPCA, SparseKernelPCA, ApproximateKernelPCA):
        with pytest.raises(ValueError, match="in the kernel's units"):
            batch(1, kernel=kernel.in_units([1e-120, 1.0])).fit(np.vstack([X, [[1e-20, 0.0]]]))


def test_rows_infinitely_far_in_units_resemble_no_atom():
    X = np.random.default_rng(0).normal(size=(60, 12)) * 1e-100
    model = StreamingKernelPCA(2, kernel=RBF(0.1).in_units([1e-100] * 12), block_size=20).partial_fit(X)
    far = np.full((6, 12), 1e250)
    # Uncompiled loops warn of overflow, compiled ones do not.
    with np.errstate(all="ignore") if numba.config.DISABLE_JIT else contextlib.nullcontext():
        np.testing.assert_array_equal(model.reconstruction_error(far), np.ones(6))
        np.testing.assert_array_equal(model.reconstruction_error(far[:1]), [1.0])


# Units that are chosen by how many features count


def _spreads(*sizes, n=200):
    return np.random.default_rng(0).normal(size=(n, len(sizes))) * np.array(sizes)


def test_units_auto_are_the_ranges_where_few_features_make_up_the_distances():
    for sizes in [(1000.0, 1.0, 1.0, 1.0, 1.0), (1e6, 1e3, 1.0, 1e-3), (1.0, 1e-3), (1e9, 1.0)]:
        rows = _spreads(*sizes)
        assert RBF(1.0).in_units("auto").settled(rows) == RBF(1.0).in_units("range").settled(rows)


def test_units_auto_are_one_where_many_features_count():
    for sizes in [(1.0, 1.0), (1.0, 2.0, 0.5, 1.0, 3.0), (5.0,), (1e-9, 2e-9), (1e60, 1e60)]:
        rows = _spreads(*sizes)
        settled = RBF(1.0).in_units("auto").settled(rows)
        assert settled == RBF(1.0).in_units([1.0] * len(sizes)).settled(rows)


def test_units_auto_go_by_the_effective_number_of_features():
    # (sum v)^2 / sum v^2 - 1 is 2 v / (1 + v^2) for variances 1 and v, to compare with .13.
    rows = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    for variance in (0.01, 0.05, 0.064, 0.067, 0.1, 1.0):
        scaled = rows * [1.0, variance**0.5]
        few = 2.0 * variance / (1.0 + variance**2) < 0.13
        expected = (2.0, 2.0 * variance**0.5) if few else (1.0, 1.0)
        assert RBF(1.0).in_units("auto").settled(scaled) == RBF(1.0).in_units(expected)


def test_units_auto_do_not_depend_on_offsets_or_one_unit_for_all():
    for sizes in [(100.0, 1.0, 1.0, 1.0), (1.0, 2.0, 1.5, 1.0)]:
        rows = np.round(_spreads(*sizes), 3)
        ones = RBF(1.0).in_units([1.0] * 4)
        settled = [RBF(1.0).in_units("auto").settled(X) for X in (rows, rows + 1024.0, rows * 2.0**-90)]
        assert [kernel == ones for kernel in settled] == [sizes[0] == 1.0] * 3


def test_units_auto_count_a_constant_feature_out():
    rows = np.column_stack([_spreads(1.0, 1.5), np.full(200, 1e6), np.zeros(200)])
    assert RBF(1.0).in_units("auto").settled(rows) == RBF(1.0).in_units([1.0] * 4)
    mixed = np.column_stack([_spreads(1000.0, 1.0), np.full(200, 1e6)])
    assert RBF(1.0).in_units("auto").settled(mixed) == RBF(1.0).in_units("range").settled(mixed)
    constant = np.full((10, 3), 4.0)
    assert RBF(1.0).in_units("auto").settled(constant) == RBF(1.0).in_units([1.0] * 3)


def test_units_auto_count_weights_as_copies():
    rows = np.random.default_rng(3).integers(-4, 5, size=(40, 4)) * np.array([100.0, 1.0, 2.0, 1.0])
    copies = np.random.default_rng(4).integers(1, 4, size=40)
    weighted = RBF(1.0).in_units("auto").settled(rows, copies.astype(float))
    assert weighted == RBF(1.0).in_units("auto").settled(np.repeat(rows, copies, axis=0))


def test_units_auto_print_and_are_read_again():
    kernel = RBF(1.0).in_units("auto")
    assert kernel.is_settled is False
    assert "auto" in repr(kernel)
    assert StreamingKernelPCA(kernel=kernel).get_params()["kernel__units"] == "auto"
    model = StreamingKernelPCA(2, kernel=kernel).partial_fit(_spreads(1000.0, 1.0))
    assert StreamingKernelPCA.from_bytes(model.to_bytes()).kernel_ == model.kernel_
