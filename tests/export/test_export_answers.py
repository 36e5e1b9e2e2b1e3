"""Exports answer as their models do: C files, compiled many in one, and ONNX graphs, run by onnxruntime."""

import numpy as np
import pytest
from exports import (
    COMPILER,
    EXPORTABLE,
    NUMBERS,
    Case,
    Session,
    are_well_apart,
    assert_same_answers,
    compile_all,
    drawn_rows,
    exact_rbf_errors,
    exportable_kernels,
    formula,
    plain,
    probing_rows,
    rarity_of,
    streamed,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamkpca import ApproximateKernelPCA, KernelPCA, SparseKernelPCA
from streamkpca.export.views import fit_views
from streamkpca.kernels import RBF, Cosine, Laplacian, Linear, Matern, RationalQuadratic

pytestmark = pytest.mark.slow
# Others see some columns only.
OF_ALL_NUMBERS = [kernel for kernel in EXPORTABLE if ".on(" not in repr(kernel)]


@pytest.fixture(scope="module", params=["c", "onnx"])
def build(request, tmp_path_factory):
    """Export some models, and return what answers for each."""
    if request.param == "onnx":
        return lambda *cases: [Session(case) for case in cases]
    if COMPILER is None:
        pytest.skip("no C compiler (cc, gcc or clang) on the path")
    folder = tmp_path_factory.mktemp("c")
    return lambda *cases: compile_all(folder, cases)


@pytest.fixture(scope="module")
def every_kernel(build):
    """Export all kernels in both precisions."""
    cases = {dtype: [Case(plain(kernel), dtype) for kernel in EXPORTABLE] for dtype in NUMBERS}
    return {dtype: dict(zip(EXPORTABLE, build(*parts), strict=True)) for dtype, parts in cases.items()}


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("kernel", EXPORTABLE, ids=repr)
def test_every_exportable_kernel_answers_as_in_python(kernel, dtype, every_kernel):
    model, exported = plain(kernel), every_kernel[dtype][kernel]
    # The second is what the header of a C file says.
    single = 1e-5 if isinstance(exported, Session) else 1e-3
    tolerance, farthest = {"float": (single, 1e15), "double": (1e-12, 1e140)}[dtype]
    rows = probing_rows(model).astype(NUMBERS[dtype]).astype(np.float64)
    assert_same_answers(model, rows, *exported.answers(rows), tolerance=tolerance)
    if kernel.is_stationary:
        # Novelty goes on growing far away.
        rows = np.geomspace(10.0, farthest, 60)[:, None] * [0.7, -1.0, 0.2]
        rows = rows.astype(NUMBERS[dtype]).astype(np.float64)
        np.testing.assert_allclose(exported.answers(rows)[2], model.novelty(rows), rtol=10.0 * tolerance)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("d", [1, 4])
def test_rarity_and_expected_numbers_are_those_of_a_monitors_views(d, dtype, build):
    angle = np.random.default_rng(0).uniform(0.0, 2.0 * np.pi, (3000, 1))
    rows = (np.sin(angle + np.arange(d)) + 0.1 * drawn_rows(0, 3000, d)) * [100.0, 1.0, 0.01, 7.0][:d] + 50.0
    rows = rows.astype(np.float32).astype(np.float64)
    model = streamed(RBF("spread").in_units("std"), rows[:2000])
    relation, tolerance = fit_views(model).relation, {"float": 1e-4, "double": 1e-11}[dtype]
    (exported,) = build(Case(model, dtype))
    broken = rows[2000:2200] + 200.0 * np.eye(d)[0]
    asked = np.concatenate([rows[2000:], broken, [[1e30, 0.0, -1e30, 0.0][:d]]])
    found, rarity = exported.rarity(asked), rarity_of(model, asked)
    # Interpolated between powers of two.
    assert ((0.6 * rarity < found) & (found < 1.7 * rarity))[:-1].all()
    assert 2 < (found[:1000] > 100.0).sum() < 20
    assert 1e4 < found[-1] < np.inf
    most, expected, terms = exported.explain(asked)
    reference = asked[:-1] / relation.scale - relation.residuals(asked[:-1])
    np.testing.assert_allclose(expected[:-1] / relation.scale, reference, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(terms[:-1], relation.terms(asked[:-1]), rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(most, terms.argmax(axis=1))
    assert (most[1000:1200] == 0).mean() > 0.9
    asked[0, 0] = np.nan
    assert np.isnan(exported.rarity(asked[:2])).tolist() == [True, False]
    # In C, what is missing is predicted by the others.
    expected[0, 0] = np.nan if isinstance(exported, Session) else expected[0, 0]
    np.testing.assert_allclose(exported.explain(asked[:2])[1][:, 0], expected[:2, 0], rtol=tolerance)


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kernels=st.lists(exportable_kernels(), min_size=6, max_size=6))
def test_combinations_answer_as_in_python(kernels, build):
    models = [streamed(kernel, n_components=0.8) for kernel in kernels]
    models, rows = [model for model in models if are_well_apart(model)], drawn_rows(1, 30)
    for model, exported in zip(models, build(*map(Case, models)), strict=True):
        assert_same_answers(model, rows, *exported.answers(rows), tolerance=1e-12)


def test_every_estimator_one_atom_one_column_and_a_large_alpha(build):
    rows = drawn_rows(0, 60)
    rows[50:] = rows[:10]
    batch = [KernelPCA(2), SparseKernelPCA(2, n_active=9), ApproximateKernelPCA(2, max_atoms=9)]
    models = [model.set_params(kernel=Laplacian(0.5)).fit(rows) for model in batch]
    lonely = streamed(0.3 * Linear(), drawn_rows(0, d=1), n_components=1)
    assert lonely.n_atoms_ == 1
    models += [lonely, streamed(Matern(0.5, length_scale=1.7).on([1]), n_components=1)]
    # alpha log(1 + t / alpha) with t / alpha near rounding is what log1p is for.
    models.append(streamed(RationalQuadratic(1e7 + 0.5, length_scale=1.0)))
    for model, exported in zip(models, build(*map(Case, models)), strict=True):
        new = drawn_rows(1, 20, model.n_features_in_)
        assert_same_answers(model, new, *exported.answers(new), tolerance=1e-12)


def test_the_error_is_as_exact_as_the_models_own_for_nearly_dependent_atoms(build):
    model = streamed(RBF(0.02), max_atoms=60, tolerance=1e-9)
    rows = drawn_rows(1, 200)
    truth = exact_rbf_errors(model, rows, 0.02)
    ours = np.abs(build(Case(model))[0].answers(rows)[1] - truth).max()
    assert ours < 4.0 * np.abs(model.reconstruction_error(rows) - truth).max() + 1e-13


def test_large_offsets_and_features_of_very_different_units_do_no_harm(build):
    rows = (drawn_rows(0) + np.array([1e5, -3e5, 0.0])).astype(np.float32).astype(np.float64)
    kernels = [
        RBF(0.4),
        Matern(0.5, length_scale=1.7),
        Laplacian(0.4).on([1, 0]),
        Laplacian(0.4).in_units([0.7, 1.3]).on([1, 0]),
    ]
    wide = drawn_rows(0, 400, 12)
    wide[:, 1:] += 0.8 * wide[:, :-1]
    wide = ((wide + 5.0) * 10.0 ** np.linspace(-3, 5, 12)).astype(np.float32).astype(np.float64)
    models = [(streamed(kernel, rows), rows[:50]) for kernel in kernels]
    models.append((streamed(RBF("spread").in_units("std"), wide), wide[:50]))
    cases = [(Case(model, dtype), some) for model, some in models for dtype in NUMBERS]
    for (case, some), exported in zip(cases, build(*(case for case, _ in cases)), strict=True):
        tolerance = {"double": 1e-12, "float": 1e-5}[case.dtype]
        assert_same_answers(case.model, some, *exported.answers(some), tolerance=tolerance)


@pytest.mark.parametrize("kernel", OF_ALL_NUMBERS, ids=repr)
def test_nan_stays_nan_and_harms_no_other_row(kernel, every_kernel):
    rows = drawn_rows(1, 4)
    clean = every_kernel["double"][kernel].answers(rows)
    rows[0, 1] = rows[2] = np.nan
    for answer, before in zip(every_kernel["double"][kernel].answers(rows), clean, strict=True):
        assert np.isnan(answer[[0, 2]]).all()
        np.testing.assert_allclose(answer[[1, 3]], before[[1, 3]], atol=1e-14)


def test_rows_far_away_resemble_no_atom_and_lengths_do_not_overflow(every_kernel):
    for kernel in (RBF(0.4), Matern(1.5, length_scale=1.7), RationalQuadratic(1.0, length_scale=1.7)):
        for size in (1e150, 1e200):
            projections, errors, novelty = every_kernel["double"][kernel].answers(np.full((1, 3), size))
            np.testing.assert_allclose(projections, -formula(plain(kernel)).offset[None], atol=1e-12)
            np.testing.assert_allclose(errors, 1.0, atol=1e-12)
            assert 1e2 < novelty[0] < np.inf
    rows = drawn_rows(1, 4) * np.array([[1e200], [1e-200], [1.0], [0.0]])
    answers = every_kernel["double"][Cosine()].answers(rows)
    assert_same_answers(plain(Cosine()), rows, *answers, tolerance=1e-12)
