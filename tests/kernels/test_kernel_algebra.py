"""The algebra of kernels: laws over random expressions, held against a naive evaluator."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics.pairwise import cosine_similarity
from test_kernels import PRIMITIVES

from streamkpca import kernels
from streamkpca.kernels import RBF, Cosine, Custom, Laplacian, Linear, Sigmoid

D = 4
UNITS = np.array([1.0, 0.7, 2.5, 3.0])


# Kernels and the functions (X, Y) -> matrix that they must equal, positive semi-definite ones.
CASES = [case for case in PRIMITIVES if not isinstance(case[0], Sigmoid)]
CASES.append((Custom(cosine_similarity), cosine_similarity))


def extend(children):
    def binary(pair):
        (k1, f1), (k2, f2) = pair
        return st.sampled_from(
            [(k1 + k2, lambda X, Y: f1(X, Y) + f2(X, Y)), (k1 * k2, lambda X, Y: f1(X, Y) * f2(X, Y))]
        )

    def unary(child):
        k, f = child
        return st.sampled_from(
            [
                (2.5 * k, lambda X, Y: 2.5 * f(X, Y)),
                (k * 0.1, lambda X, Y: 0.1 * f(X, Y)),
                (k**1, f),
                (k**3, lambda X, Y: f(X, Y) ** 3),
                ((0.01 * k).exp(), lambda X, Y: np.exp(0.01 * f(X, Y))),
                (k.in_units(UNITS), lambda X, Y: f(X / UNITS, Y / UNITS)),
                (k.on([2, 0, 3, 1]), lambda X, Y: f(X[:, [2, 0, 3, 1]], Y[:, [2, 0, 3, 1]])),
            ]
        )

    return st.one_of(st.tuples(children, children).flatmap(binary), children.flatmap(unary))


expressions = st.recursive(st.sampled_from(CASES), extend, max_leaves=5)


COLUMNS = st.lists(st.integers(0, D - 1), min_size=1, unique=True)


@st.composite
def placed(draw):
    """Draw an expression, most often on some columns of its own, as part of a sum with another one."""
    kernel, function = draw(expressions)
    # There must be as many columns as units, or as a part has chosen.
    is_fixed = "in_units" in repr(kernel) or ".on(" in repr(kernel)
    columns = draw(st.permutations(range(D)) if is_fixed else COLUMNS)
    other, other_function = draw(expressions)
    return kernel.on(columns) + other, lambda X, Y: function(X[:, columns], Y[:, columns]) + other_function(X, Y)


def rows(seed, n):
    return np.random.default_rng(seed).uniform(-1.5, 1.5, size=(n, D))


@given(case=st.one_of(expressions, placed()), seed=st.integers(0, 999), n=st.integers(1, 7))
def test_programs_equal_the_naive_evaluator(case, seed, n):
    kernel, function = case
    X, Y = rows(seed, n), rows(seed + 1, 5)
    with np.errstate(over="ignore"):
        expected, own = function(X, Y), function(X, X)
    finite = np.abs(own).max(initial=np.abs(expected).max()) < 1e200
    if finite:
        # Sums may cancel: their error is relative to the largest entries.
        np.testing.assert_allclose(kernel.matrix(X, Y), expected, rtol=1e-10, atol=1e-11 * np.abs(own).max())
        np.testing.assert_allclose(kernel.matrix(X), own, rtol=1e-10, atol=1e-11 * np.abs(own).max())
        np.testing.assert_allclose(kernel.diagonal(X), np.diagonal(own), rtol=1e-10)
        K = kernel.matrix(X)
        np.testing.assert_array_equal(K, K.T)
        spectrum = np.linalg.eigvalsh(K)
        assert spectrum[0] >= -1e-11 * spectrum[-1] or np.abs(K).max() > 1e100


@given(case=st.one_of(expressions, placed()))
def test_combinations_are_values(case):
    kernel = case[0]
    with pytest.raises(AttributeError, match="cannot assign"):
        kernel.gamma = 3.0
    assert copy.deepcopy(kernel) == kernel
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    if "<function" not in repr(kernel):
        again = eval(repr(kernel), {name: getattr(kernels, name) for name in kernels.__all__})
        assert (again, hash(again)) == (kernel, hash(kernel))


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (RBF(0.5) + 2.0 * Linear(), "RBF(gamma=0.5) + 2.0 * Linear()"),
        ((RBF(0.5) + Linear()) * Cosine(), "(RBF(gamma=0.5) + Linear()) * Cosine()"),
        (Linear() * (Linear() * Cosine()), "Linear() * (Linear() * Cosine())"),
        (2 * (Linear() * Cosine()), "2.0 * (Linear() * Cosine())"),
        ((2 * Linear()) ** 2, "(2.0 * Linear()) ** 2"),
        (2 * Linear() ** 2, "2.0 * Linear() ** 2"),
        ((Linear() + Cosine()).exp().on(1), "(Linear() + Cosine()).exp().on((1,))"),
    ],
)
def test_kernels_print_as_the_code_that_makes_them(kernel, text):
    assert repr(kernel) == text
    assert eval(text) == kernel


def test_numpy_numbers_scale_kernels():
    for number in (np.float64(2.0), np.float32(2.0), np.int64(2), 2):
        assert number * Linear() == Linear() * number == 2.0 * Linear()


def test_settling_reaches_every_part():
    X = rows(0, 20) * np.array([1.0, 10.0, 1.0, 1.0])
    kernel = (RBF() + 2.0 * Laplacian("spread").on([1]) * Linear()).exp() ** 2
    assert not kernel.is_settled
    settled = kernel.settled(X)
    assert settled.is_settled
    expected = RBF().settled(X) + 2.0 * Laplacian("spread").settled(X[:, [1]]).on([1]) * Linear()
    assert settled == expected.exp() ** 2
    assert settled.settled(X) is settled
    with pytest.raises(ValueError, match=r"Sum: expected all parameters to be numbers, but RBF\(gamma='contrast'\)"):
        (RBF() + Linear()).matrix(X)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda k: 0.0 * k, ValueError, r"Scaled: scale must be a finite number in \(0"),
        (lambda k: True * k, TypeError, "unsupported operand"),
        (lambda k: k + 1.0, TypeError, "unsupported operand"),
        (lambda k: k**0, ValueError, "Power: exponent must be at least 1"),
        (lambda k: k**0.5, TypeError, "Power: exponent must be an integer"),
        (lambda k: k.on([]), ValueError, "on: expected at least one column"),
        (lambda k: k.on([0, 0]), ValueError, r"on: expected every column once but got \(0, 0\)"),
        (lambda k: k.on([-1]), ValueError, "on: column must be at least 0"),
        (lambda k: k.on([0.5]), TypeError, "on: column must be an integer"),
        (lambda k: k.on(np.array(1)), TypeError, "on: expected a column or a list of columns"),
        (lambda k: k.on([2]).on([0, 1]), ValueError, "on: the kernel .* uses column 2 but got rows with 2 features"),
    ],
)
def test_nonsense_combinations_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make(RBF(1.0))


def test_missing_columns_are_named():
    kernel = Linear() + RBF(1.0).on([1, 7])
    for ask in (kernel.matrix, kernel.diagonal, kernel.settled):
        with pytest.raises(ValueError, match=r"uses column 7 but got rows with 4 features \(columns 0 to 3\)"):
            ask(rows(0, 3))


@pytest.mark.parametrize(
    "ask",
    [
        lambda kernel: kernel.check_width(3),
        lambda kernel: kernel.with_parameter("none", 1.0),
        lambda kernel: kernel.program,
    ],
    ids=["columns", "parameter", "scale"],
)
def test_errors_show_only_the_beginning_of_a_long_kernel(ask):
    with pytest.raises(ValueError, match=r"RBF\(gamma='spread'\)\.on\(\(0, 1, 2, .*\.\.\.") as caught:
        ask(RBF("spread").on(range(130_000)))
    assert len(str(caught.value)) < 500


def test_the_deepest_kernels_can_be_compared_and_checked():
    kernel, units = RBF(1.0), RBF(1.0)
    for level in range(200):
        kernel, units = 2.0 * kernel if level % 2 else kernel + Linear(), units.in_units([1.0])
    gamma = next(name for name in kernel.parameters() if name.endswith("gamma"))
    assert kernel.is_near(kernel.with_parameter(gamma, 1.2))
    assert not kernel.is_near(kernel.with_parameter(gamma, 1.3))
    with pytest.raises(ValueError, match=r"^InUnits\.check_width: the kernel has units for 1"):
        units.check_width(2)
    with pytest.raises(ValueError, match=r"^InUnits\.check_range: feature 0"):
        units.check_range(np.array([[1e300]]))
