"""The compiled loops, called directly: the program interpreter, its exponential, and the distances."""

import contextlib

import numba
import numpy as np
import pytest

from streamkpca.kernels import RBF, Laplacian, Linear, Matern, Polynomial, RationalQuadratic, Sigmoid
from streamkpca.kernels import _loops as loops
from streamkpca.kernels._loops import (
    TILE,
    count_equal,
    direct_distances,
    exponentiate,
    finish_squared_distances,
    mirror_lower,
    multiply_rows,
    run_program,
)
from streamkpca.kernels.gradients import gradient_by_rows, values_and_gradients


def quiet():
    """Uncompiled, the loops are numpy scalars, which warn where machine code is silent."""
    return np.errstate(all="ignore") if numba.config.DISABLE_JIT else contextlib.nullcontext()


def exp_of(x):
    stack = np.empty((3, len(x)))
    stack[0] = x
    with quiet():
        exponentiate(stack, stack.view(np.int64), 0, 1, len(x))
    return stack[0]


def run(steps, bases, left=None, right=None, *, depth=4):
    """Run a program over whole base matrices, given as a list of equal shapes."""
    n, m = bases[0].shape
    target = np.array(bases[0])
    others = np.array(bases[1:]).reshape(len(bases) - 1, n, m)
    codes = np.array([step[0] for step in steps])
    operands = np.array([step[1] for step in steps])
    constants = np.array([step[2:] for step in steps], dtype=float)
    left = np.empty((0, n)) if left is None else left
    right = np.empty((0, m)) if right is None else right
    with quiet():
        run_program(codes, operands, constants, depth, others, left, right, target, 0, 0, n, m)
    return target


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
    expected = np.exp(x)
    assert (np.abs(exp_of(x) - expected) <= 1.01 * np.spacing(expected)).all()


def test_exponential_is_exactly_one_at_zero():
    assert exp_of(np.array([0.0, -0.0])).tolist() == [1.0, 1.0]


def test_exponential_beyond_the_range_of_normal_numbers():
    x = np.array([-np.inf, -1e308, -745.2, -708.5, 709.79, 800.0, 1e308, np.inf])
    np.testing.assert_array_equal(exp_of(x), [0, 0, 0, 0, np.inf, np.inf, np.inf, np.inf])


def test_exponential_at_the_ends_of_the_range():
    x = np.array([-708.396418532264, 709.782712893383])
    np.testing.assert_allclose(exp_of(x), np.exp(x), rtol=4e-16)


def test_exponential_keeps_nan_whatever_its_payload():
    payloads = np.array([0x7FF8000000000000, 0x7FF8000000000801, -0x0008000000000000 + 3], dtype=np.int64)
    assert np.isnan(exp_of(payloads.view(np.float64))).all()


def test_exponential_touches_only_the_first_values():
    stack = np.full((3, 4), 7.0)
    exponentiate(stack, stack.view(np.int64), 0, 1, 2)
    assert stack[0, 2:].tolist() == [7.0, 7.0]


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
        ([step(loops.COPY), step(loops.MULTIPLY)], lambda x: x * x),
        ([step(loops.COPY), step(loops.EXP), step(loops.ADD)], lambda x: x + np.exp(x)),
        ([step(loops.COPY), step(loops.AFFINE, b=2.0), step(loops.SWAP), step(loops.EXP), step(loops.ADD)],
         lambda x: 2 + np.exp(x)),
        ([load(), step(loops.EXP), load(), step(loops.MULTIPLY), step(loops.ADD)], lambda x: x + x * np.exp(x)),
    ],
)  # fmt: skip
def test_every_operation_is_its_formula(steps, formula, x):
    np.testing.assert_allclose(run([load(), *steps], [x]), formula(x), rtol=1e-14)


def test_minimum_keeps_nan_and_bounds_infinity():
    values = run([load(), step(loops.MINIMUM, a=1.0)], [np.array([[np.nan, np.inf, -np.inf]])])
    np.testing.assert_array_equal(values, [[np.nan, 1.0, -np.inf]])


def test_base_matrices_are_told_apart(x):
    rng = np.random.default_rng(2)
    y, z = rng.normal(size=(2, *x.shape))
    steps = [load(1), load(0), step(loops.MULTIPLY), load(2), step(loops.ADD)]
    np.testing.assert_allclose(run(steps, [x, y, z]), x * y + z, rtol=1e-14)


def test_row_scalings_multiply_from_both_sides(x):
    rng = np.random.default_rng(3)
    left, right = rng.normal(size=(2, 5)), rng.normal(size=(2, 7))
    steps = [load(), step(loops.SCALE, 1)]
    np.testing.assert_allclose(run(steps, [x], left, right), np.outer(left[1], right[1]) * x, rtol=1e-14)


@pytest.mark.parametrize("shape", [(1, 1), (3, TILE - 1), (2, TILE), (2, TILE + 1), (TILE // 4, 9), (TILE + 5, 1)])
def test_tiles_cover_every_entry_once(shape):
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(2, *shape))
    left, right = rng.normal(size=(1, shape[0])), rng.normal(size=(1, shape[1]))
    steps = [load(0), step(loops.AFFINE, a=1.0, b=1.0), load(1), step(loops.MULTIPLY), step(loops.SCALE, 0)]
    np.testing.assert_allclose(run(steps, [x, y], left, right), (x + 1) * y * np.outer(left, right), rtol=1e-13)


def test_only_the_block_is_written():
    target = np.arange(30.0).reshape(5, 6)
    expected = target.copy()
    scales = np.arange(1.0, 12.0)
    left, right = scales[None, :5], scales[None, 5:]
    expected[1:4, 2:5] = (expected * np.outer(left, right))[1:4, 2:5]
    codes = np.array([loops.LOAD, loops.SCALE])
    run_program(codes, np.zeros(2, int), np.zeros((2, 2)), 1, np.empty((0, 3, 3)), left, right, target, 1, 2, 3, 3)
    np.testing.assert_array_equal(target, expected)


def exact(X, Y, power):
    differences = np.abs(X[:, None].astype(np.longdouble) - Y[None].astype(np.longdouble))
    return (differences**power).sum(axis=2)


def direct(X, Y, *, squared):
    out = np.empty((len(X), len(Y)))
    with quiet():
        direct_distances(X, np.ascontiguousarray(Y.T), squared, out, 0, 0)
    return out


def finished(X, Y, centre):
    x, y = X - centre, Y - centre
    out = x @ y.T
    with quiet():
        finish_squared_distances(X, Y, (x * x).sum(axis=1), (y * y).sum(axis=1), out, 0, 0)
    return out


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 300, 2), (4, 5, 40)])
def test_direct_distances_are_the_sums(shape):
    n, m, d = shape
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(n, d)) + 1e6, rng.normal(size=(m, d)) + 1e6
    np.testing.assert_allclose(direct(X, Y, squared=True), exact(X, Y, 2).astype(float), rtol=1e-14)
    np.testing.assert_allclose(direct(X, Y, squared=False), exact(X, Y, 1).astype(float), rtol=1e-14)


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


def multiplied(X, origin, W):
    out = np.full((len(X), len(W)), np.nan)
    with quiet():
        multiply_rows(X, origin, np.ascontiguousarray(W.T), out)
    return out


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 4, 4), (2, 5, 3), (7, 11, 13), (0, 3, 2)], ids=str)
def test_rows_are_multiplied(shape):
    n, c, p = shape
    rng = np.random.default_rng(0)
    X, origin, W = rng.normal(size=(n, c)), rng.normal(size=c), rng.normal(size=(p, c))
    np.testing.assert_allclose(multiplied(X, origin, W), (X - origin) @ W.T, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("c", [3, 8, 53])
def test_rows_are_multiplied_alike_wherever_they_stand(c):
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(37, c)), rng.normal(size=(c, c))
    whole = multiplied(X, np.zeros(c), W)
    for i in range(37):
        np.testing.assert_array_equal(multiplied(X[i : i + 1], np.zeros(c), W)[0], whole[i])
        np.testing.assert_array_equal(multiplied(X[: i + 1], np.zeros(c), W), whole[: i + 1])


@pytest.mark.parametrize("c", [2, 4])
def test_products_that_overflow_on_both_sides_are_infinite(c):
    X, W = np.full((1, c), 1e300), np.tile([[1e100, -1e100]], (1, c // 2))
    assert multiplied(X, np.zeros(c), W) == [[np.inf]]


def test_finished_distances_of_equal_rows_are_exactly_zero():
    X = np.random.default_rng(2).normal(size=(300, 3)) * 1e3
    assert (np.diagonal(finished(X[:20], X, X.mean(axis=0))) == 0.0).all()


def test_finished_distances_overflow_to_infinity_never_to_nan():
    X = np.array([[1e200, 1.0], [-1e200, 1.0], [1.7e308, -1.7e308], [3.0, 4.0]])
    with np.errstate(all="ignore"):
        distances = finished(X, X, X.mean(axis=0))
        expected = np.where(np.eye(4) > 0, 0.0, np.inf)
    np.testing.assert_array_equal(distances, expected)


def test_distances_fill_only_their_block():
    X, Y = np.ones((2, 3)), np.zeros((4, 3))
    out = np.full((5, 8), -1.0)
    direct_distances(X, np.ascontiguousarray(Y.T), True, out, 1, 2)
    assert (out[1:3, 2:6] == 3.0).all()
    assert (out == -1.0).sum() == 5 * 8 - 8
    out[1:3, 2:6] = 0.0
    finish_squared_distances(X, Y, np.full(2, 3.0), np.zeros(4), out, 1, 2)
    assert (out[1:3, 2:6] == 3.0).all()
    assert (out == -1.0).sum() == 5 * 8 - 8


@pytest.mark.parametrize("n", [1, 7, 8, 20])
def test_mirror_makes_a_symmetric_matrix(n):
    square = np.random.default_rng(3).normal(size=(n, n))
    lower = np.tril(square)
    mirror_lower(square, 0, 0, n, n)
    np.testing.assert_array_equal(square, lower + np.tril(lower, -1).T)


def test_mirror_copies_just_the_block():
    square = np.arange(144.0).reshape(12, 12)
    expected = square.copy()
    expected[2:6, 4:9] = square[4:9, 2:6].T
    expected[4:6, 4:6] = square[4:6, 4:6]
    expected[4, 5] = square[5, 4]
    mirror_lower(square, 4, 2, 5, 4)
    np.testing.assert_array_equal(square, expected)


def test_equal_features_are_counted():
    X, Y = np.random.default_rng(0).integers(0, 3, (2, 5, 4)).astype(float)
    target = np.full((6, 7), np.nan)
    count_equal(X, np.ascontiguousarray(Y.T), target, 1, 2)
    np.testing.assert_array_equal(target[1:, 2:], (X[:, None] == Y).sum(axis=2))
    assert np.isnan(target).sum() == 42 - 25


def test_differentiated_programs_have_the_values_of_the_programs():
    X, Y = np.random.default_rng(5).normal(size=(2, 3, 2))
    for kernel in (
        RBF(0.5) * Linear() + Laplacian(0.3),
        Matern(2.5, length_scale=2.0) ** 2,
        RationalQuadratic(1.7, length_scale=2.0),
        Polynomial(3, gamma=0.5),
        Sigmoid(0.1),
    ):
        values, slopes = values_and_gradients(kernel.program, X, Y)
        np.testing.assert_allclose(values, kernel.program.matrix(X, Y), rtol=1e-12)
        step = 1e-6
        moved = Y + step * np.array([1.0, 0.0])
        bases = zip(kernel.program.base_matrices, slopes, strict=True)
        total = sum(gradient_by_rows(matrix, X, Y, slope) for matrix, slope in bases)
        difference = (kernel.program.matrix(X, moved) - values).sum(axis=0) / step
        np.testing.assert_allclose(total[:, 0], difference, rtol=1e-4, atol=1e-5)
