"""The compiled loops, called directly: the program interpreter, its exponential, and the distances."""

import numpy as np
import pytest
from kinds import quiet

from streamkpca.kernels import _loops as loops
from streamkpca.kernels._loops import (
    TILE,
    compare_directly,
    exponentiate,
    finish_squared_distances,
    multiply_rows,
    run_program,
)
from streamkpca.kernels.program import Program


def exp_of(x):
    stack = np.empty((3, len(x)))
    stack[0] = x
    with quiet():
        exponentiate(stack, stack.view(np.int64), 0, 1, len(x))
    return stack[0]


def run(steps, bases, *, depth=4):
    """Run a program over whole base matrices, given as a list of equal shapes."""
    n, m = bases[0].shape
    target = np.array(bases[0])
    others = np.array(bases[1:]).reshape(len(bases) - 1, n, m)
    codes, operands = (np.array([step[i] for step in steps]) for i in (0, 1))
    constants = np.array([step[2:] for step in steps], dtype=float)
    with quiet():
        run_program(codes, operands, constants, depth, others, target, (0, 0, n, m))
    return target


def slopes_of(steps, x):
    """Differentiate a program of one base matrix."""
    program = Program(steps, (None,), 4)
    program.base_values = lambda X, Y: X[None]
    return program.differentiate(x, x)[1][0]


def load(index=0):
    return (loops.LOAD, index, 0.0, 0.0)


def step(code, operand=0, a=0.0, b=0.0):
    return (code, operand, a, b)


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(5, 7))


def test_exponential_is_right_to_one_unit_in_the_last_place():
    rng = np.random.default_rng(1)
    x = np.concatenate(
        [
            np.linspace(-708.39, 709.78, 3001),
            rng.normal(size=2000),
            10.0 ** rng.uniform(-300, 2.8, 1000) * rng.choice([-1, 1], 1000),
            (np.arange(-1021, 1024) + 0.5) * np.log(2),
            [0.0, -0.0, 5e-324, -5e-324],
        ]
    )
    x = x[(x > -708.39) & (x < 709.78)]
    assert exp_of(np.zeros(2)).tolist() == [1.0, 1.0]
    expected = np.exp(x)
    assert (np.abs(exp_of(x) - expected) <= 1.01 * np.spacing(expected)).all()


def test_exponential_beyond_the_range_of_normal_numbers():
    x = np.array([-np.inf, -1e308, -745.2, -708.5, 709.79, 800.0, 1e308, np.inf])
    np.testing.assert_array_equal(exp_of(x), [0, 0, 0, 0, np.inf, np.inf, np.inf, np.inf])


def test_exponential_keeps_nan_whatever_its_payload():
    payloads = np.array([0x7FF8000000000000, 0x7FF8000000000801, -0x0008000000000000 + 3], dtype=np.int64)
    assert np.isnan(exp_of(payloads.view(np.float64))).all()


@pytest.mark.parametrize(
    ("steps", "formula"),
    [
        ([step(loops.AFFINE, a=2.0, b=3.0)], lambda x: 2 * x + 3),
        ([step(loops.MINIMUM, a=0.25)], lambda x: np.minimum(x, 0.25)),
        ([step(loops.POWER, 1)], lambda x: x),
        ([step(loops.POWER, 2)], lambda x: x**2),
        ([step(loops.POWER, 7)], lambda x: x**7),
        ([step(loops.POWER, 12)], lambda x: x**12),
        ([step(loops.POWER, -1)], lambda x: 1 / x),
        ([step(loops.POWER, -3)], lambda x: 1 / x**3),
        ([step(loops.EXP)], np.exp),
        ([step(loops.TANH)], np.tanh),
        ([step(loops.POWER, 2), step(loops.SQRT)], np.abs),
        ([step(loops.POWER, 2), step(loops.LOG1P)], lambda x: np.log1p(x**2)),
        ([load(), step(loops.MULTIPLY)], lambda x: x * x),
        ([load(), step(loops.EXP), load(), step(loops.MULTIPLY), step(loops.ADD)], lambda x: x + x * np.exp(x)),
    ],
)  # fmt: skip
def test_every_operation_is_its_formula(steps, formula, x):
    np.testing.assert_allclose(run([load(), *steps], [x]), formula(x), rtol=1e-14)
    width = 1e-6
    expected = (formula(x + width) - formula(x - width)) / (2.0 * width)
    np.testing.assert_allclose(slopes_of([load(), *steps], x), expected, rtol=1e-5, atol=1e-7)


def test_slopes_are_finite_where_values_have_none():
    slopes = slopes_of([load(), step(loops.SQRT)], np.array([[0.0, 4.0, np.nan, 1e308]]))
    np.testing.assert_allclose(slopes, [[0.0, 0.25, 0.0, 5e-155]])
    slopes = slopes_of([load(), step(loops.EXP)], np.array([[1e3, -1e3, np.nan, 0.0]]))
    np.testing.assert_array_equal(slopes, [[np.finfo(float).max, 0.0, 0.0, 1.0]])
    values = run([load(), step(loops.MINIMUM, a=1.0)], [np.array([[np.nan, np.inf, -np.inf]])])
    np.testing.assert_array_equal(values, [[np.nan, 1.0, -np.inf]])


@pytest.mark.parametrize("shape", [(1, 1), (2, TILE), (2, TILE + 1), (TILE // 4, 9), (TILE + 5, 1)], ids=str)
def test_tiles_cover_every_entry_of_the_block_once_and_no_other(shape):
    rng = np.random.default_rng(4)
    n, m = shape
    target, others = rng.normal(size=(n + 3, m + 4)), rng.normal(size=(1, n, m))
    before = target.copy()
    codes = np.array([loops.LOAD, loops.AFFINE, loops.LOAD, loops.MULTIPLY])
    constants = np.array([[0.0, 0.0], [2.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    run_program(codes, np.array([0, 0, 1, 0]), constants, 2, others, target, (1, 2, n, m))
    block = slice(1, n + 1), slice(2, m + 2)
    np.testing.assert_allclose(target[block], (2.0 * before[block] + 1.0) * others[0], rtol=1e-13)
    target[block] = before[block]
    np.testing.assert_array_equal(target, before)


def exact(X, Y, power):
    differences = np.abs(X[:, None].astype(np.longdouble) - Y[None].astype(np.longdouble))
    return (differences**power).sum(axis=2)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 300, 2), (4, 5, 40)])
def test_direct_comparisons_are_sums_over_features(shape):
    n, m, d = shape
    rng = np.random.default_rng(0)
    X, Y = rng.integers(-3, 4, size=(n, d)) + 1e6, rng.integers(-3, 4, size=(m, d)) + 1e6
    X, Y = X + 0.1 * rng.integers(0, 2, X.shape), Y + 0.1 * rng.integers(0, 2, Y.shape)
    expected = {
        loops.SQUARED: exact(X, Y, 2).astype(float),
        loops.ABSOLUTE: exact(X, Y, 1).astype(float),
    }
    for kind, values in expected.items():
        out = np.full((n + 2, m + 3), -1.0)
        with quiet():
            compare_directly(kind, X, np.ascontiguousarray(Y.T), out, 1, 2)
        np.testing.assert_allclose(out[1:-1, 2:-1], values, rtol=1e-14)
        assert (out == -1.0).sum() == out.size - n * m


def finished(X, Y, centre):
    x, y = X - centre, Y - centre
    out = x @ y.T
    with quiet():
        finish_squared_distances(X, Y, (x * x).sum(axis=1), (y * y).sum(axis=1), out, 0, 0)
    return out


@pytest.mark.parametrize("d", [2, 9, 64])
@pytest.mark.parametrize("kind", ["plain", "offset", "clusters", "scales", "neighbours"])
def test_finished_distances_are_right_to_twelve_digits(kind, d):
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(28, d))
    if kind == "offset":
        Z += 1e6
    elif kind == "clusters":
        Z += 1e6 * np.where(np.arange(28) % 2, 1.0, -1.0)[:, None]
    elif kind == "scales":
        Z *= 10.0 ** rng.uniform(-6, 6, size=(28, 1))
    elif kind == "neighbours":
        Z[14:] = Z[:14] + 10.0 ** rng.uniform(-9, 0, size=(14, 1)) * rng.normal(size=(14, d))
    X, Y = Z[::2].copy(), np.concatenate([Z[1::2], Z[:4]])
    expected = exact(X, Y, 2)
    error = np.abs(finished(X, Y, Y.mean(axis=0)) - expected)
    assert (error <= 1e-12 * expected).all()
    assert (np.diagonal(finished(X, X, Y.mean(axis=0))) == 0.0).all()


def multiplied(X, origin, W):
    out = np.full((len(X), len(W)), np.nan)
    with quiet():
        multiply_rows(X, origin, W, out)
    return out


@pytest.mark.parametrize("c", [3, 8, 53])
def test_rows_are_multiplied_alike_wherever_they_stand(c):
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(37, c)), rng.normal(size=(c, c))
    whole = multiplied(X, np.zeros(c), W)
    np.testing.assert_allclose(multiplied(X, X[0], W), (X - X[0]) @ W.T, rtol=1e-12, atol=1e-13)
    for i in range(37):
        np.testing.assert_array_equal(multiplied(X[i : i + 1], np.zeros(c), W)[0], whole[i])
        np.testing.assert_array_equal(multiplied(X[: i + 1], np.zeros(c), W), whole[: i + 1])


@pytest.mark.parametrize("c", [2, 4])
def test_products_that_overflow_on_both_sides_are_infinite(c):
    X, W = np.full((1, c), 1e300), np.tile([[1e100, -1e100]], (1, c // 2))
    # On either side: a product that is added without being rounded is finite where the other one is not.
    assert np.isinf(multiplied(X, np.zeros(c), W)).all()


def test_finished_distances_overflow_to_infinity_never_to_nan():
    X = np.array([[1e200, 1.0], [-1e200, 1.0], [1.7e308, -1.7e308], [3.0, 4.0]])
    with np.errstate(all="ignore"):
        distances = finished(X, X, X.mean(axis=0))
        expected = np.where(np.eye(4) > 0, 0.0, np.inf)
    np.testing.assert_array_equal(distances, expected)
