"""Law 7: a model that is saved and loaded continues as if it had never been stopped, bit for bit."""

import os
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from streamkpca import Checkpointer, StreamingKernelPCA, kernels, load
from streamkpca.errors import CheckpointError
from streamkpca.monitoring import Monitor

ROWS = np.random.default_rng(0).normal(size=(400, 3))


def revived(model):
    return StreamingKernelPCA.from_bytes(model.to_bytes())


@pytest.mark.parametrize(
    "model",
    [
        StreamingKernelPCA(),
        StreamingKernelPCA(0.9, kernel="laplacian", max_atoms=None, tolerance=0.1),
        StreamingKernelPCA(np.int64(4), n_active=np.int32(5), half_life=np.float64(1e6), random_state=2**80),
        StreamingKernelPCA(2, kernel=2.0 * kernels.RBF("spread") + kernels.Matern(2.5).on([0, 2]).exp() ** 2),
        StreamingKernelPCA(2, kernel=kernels.Linear() * kernels.RationalQuadratic(0.7, length_scale=3)),
        StreamingKernelPCA(2, axes="likelihood", center=np.bool_(False), noise_variance=np.float32(0.1)),
    ],
    ids=repr,
)
def test_parameters_come_back(model):
    again = model.set_params(block_size=16)
    for part in (ROWS[:1], ROWS[1:40], ROWS[40:]):
        again = revived(again)
        assert again.get_params() == model.get_params()
        assert again.partial_fit(part).to_bytes() == model.partial_fit(part).to_bytes()
        assert again.kernel_ == model.kernel_


def test_names_counters_and_pending_rows_come_back():
    table = pytest.importorskip("pandas").DataFrame(ROWS[:20], columns=["a", "ü\n", '"'])
    model = StreamingKernelPCA(2, block_size=8).partial_fit(table)
    again = revived(model)
    assert again.feature_names_in_.tolist() == ["a", "ü\n", '"']
    assert again.n_samples_seen_ == 20
    with pytest.raises(ValueError, match="feature names should match"):
        again.partial_fit(table[["ü\n", "a", '"']])


class Overlap:
    """Histogram intersection: min(x, y) summed."""

    def __call__(self, X, Y):
        return np.minimum(np.abs(X)[:, None], np.abs(Y)[None]).sum(axis=2)


def test_functions_are_never_stored_and_must_be_passed_again():
    kernel = kernels.Custom(Overlap()) + kernels.RBF("spread")
    model = StreamingKernelPCA(2, kernel=kernel, max_atoms=10, block_size=32).partial_fit(ROWS[:100])
    with pytest.raises(CheckpointError, match=r"functions of the caller.*pass the settled kernel again: load"):
        revived(model)
    again = StreamingKernelPCA.from_bytes(model.to_bytes(), kernel=model.kernel_)
    np.testing.assert_array_equal(again.transform(ROWS), model.transform(ROWS))
    np.testing.assert_array_equal(
        again.partial_fit(ROWS[100:]).transform(ROWS), model.partial_fit(ROWS[100:]).transform(ROWS)
    )
    with pytest.raises(CheckpointError, match="the kernel that was passed is not that of its atoms"):
        StreamingKernelPCA.from_bytes(model.to_bytes(), kernel=kernels.Custom(Overlap()) + kernels.RBF(9.0))
    for wrong in (kernel, "rbf", 3):
        with pytest.raises(TypeError, match="expected kernel to be a settled Kernel"):
            StreamingKernelPCA.from_bytes(model.to_bytes(), kernel=wrong)


def test_bytes_are_not_taken_for_the_name_of_a_file():
    with pytest.raises(TypeError, match="expected the name of a file but got the bytes of one; from_bytes reads them"):
        load(StreamingKernelPCA(2).to_bytes())


def test_atoms_may_be_longer_than_all_rows():
    """The span of the atom is all that matters to a linear kernel, and its length follows from the steps of a move."""
    rows = np.array([[2.0, 1.0], [0.0, -1.0], [-1.0, -2.0], [-2.0, -2.0]])
    model = StreamingKernelPCA(1, kernel="linear", max_atoms=1, block_size=4).fit(rows)
    assert np.linalg.norm(model.atoms_) > np.linalg.norm(rows, axis=1).max()
    assert revived(model).to_bytes() == model.to_bytes()


def covariance_of(X, weights):
    """Return the unbiased weighted covariance, from exact arithmetic."""
    a, exact = [Fraction(w) for w in weights], [[Fraction(x) for x in row] for row in X]
    total, d = sum(a), X.shape[1]
    mean = [sum(w * row[j] for w, row in zip(a, exact, strict=True)) / total for j in range(d)]
    around = [[x - m for x, m in zip(row, mean, strict=True)] for row in exact]
    divisor = total - sum(w * w for w in a) / total
    entries = [
        [float(sum(w * row[i] * row[j] for w, row in zip(a, around, strict=True)) / divisor) for j in range(d)]
        for i in range(d)
    ]
    return np.array(entries)


@pytest.mark.parametrize(("weight", "n_before"), [(1.0, 40), (1e6, 600), (1e12, 40)])
def test_a_row_that_weighs_more_than_all_others_leaves_shares_right(weight, n_before):
    X = np.random.default_rng(int(np.log10(weight)) + n_before).normal(size=(n_before + 1, 3))
    weights = np.append(np.ones(n_before), weight)
    model = StreamingKernelPCA(5, kernel="linear", max_atoms=None).partial_fit(X, sample_weight=weights).refit()
    exact = np.sort(np.linalg.eigvalsh(covariance_of(X, weights)))[::-1]
    # Rounding of the sums, divided by what is left of the weight beside the heaviest row.
    rounding = 1e-15 * weights @ (X * X).sum(axis=1) / n_before
    np.testing.assert_allclose(model.eigenvalues_[:3], exact, rtol=1e-9, atol=10.0 * rounding)
    assert not model.eigenvalues_[3:].any()
    shares = model.explained_variance_ratio_
    np.testing.assert_allclose(shares[:3], exact / exact.sum(), rtol=1e-9, atol=10.0 * rounding)
    assert shares.sum() == pytest.approx(1.0, abs=1e-9 + 10.0 * rounding)
    assert revived(model).to_bytes() == model.to_bytes()


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    path = tmp_path / "model.npz"
    model = StreamingKernelPCA(2, max_atoms=10, block_size=64).partial_fit(ROWS)
    model.save(path)
    before = path.read_bytes()
    model.state_ = replace(model.state_, n_rejected=-1)
    with pytest.raises(CheckpointError, match=r"save: .*model\.npz could not be loaded again \(.*\), so no"):
        model.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.npz"]
    checkpoints = Checkpointer(path)
    with pytest.raises(CheckpointError, match="so nothing was saved"):
        checkpoints.save(model)
    assert checkpoints.generations == []
    monitor = Monitor()
    monitor.update(ROWS)
    monitor._state = replace(monitor._state, n_chunks=-1)
    with pytest.raises(CheckpointError, match=r"Monitor\.save: its monitor makes no sense: n_chunks is -1"):
        monitor.save(tmp_path / "monitor.npz")
    assert os.listdir(tmp_path) == ["model.npz"]
