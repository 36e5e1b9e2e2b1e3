"""Where an error says that it was raised: at the call of the user, not in a check below it; and warnings, too."""

import pickle
import sys
import warnings

import numpy as np
import pytest

from streamkpca import (
    ApproximateKernelPCA,
    Bank,
    Checkpointer,
    KernelPCA,
    OutlierDetector,
    SparseKernelPCA,
    StreamingKernelPCA,
    kernels,
)
from streamkpca.aggregate import Aggregate
from streamkpca.changes import ChangeDetector
from streamkpca.errors import CheckpointError, RowError
from streamkpca.export import to_c, to_device
from streamkpca.kernels import RBF, Linear
from streamkpca.monitoring import Monitor

MODEL = StreamingKernelPCA(1, kernel="linear").partial_fit([[1.0, 2.0], [2.0, 1.0]])
BAD = [[np.nan, 1.0]]
CALLS = {
    "a class": (lambda: kernels.RBF(-1.0), r"RBF: gamma must be"),
    "a method": (lambda: KernelPCA(kernel="rbff").fit([[1.0]]), r"KernelPCA\.fit: kernel must be"),
    "a method that calls another": (
        lambda: ApproximateKernelPCA().fit_transform(BAD),
        r"ApproximateKernelPCA\.fit_transform: X contains NaN",
    ),
    "self by keyword": (
        lambda: StreamingKernelPCA.partial_fit(X=[[1.0]], self=MODEL),
        r"StreamingKernelPCA\.partial_fit: X has 1 features",
    ),
    "of a monitor": (lambda: Monitor(StreamingKernelPCA()).update([[np.inf]]), r"Monitor\.update: X contains infinity"),
    "inherited": (lambda: Monitor.from_bytes(b"", kernel=3), r"Monitor\.from_bytes: expected kernel to be"),
    "inherited by another": (lambda: ChangeDetector.from_bytes(b"", kernel=3), r"ChangeDetector\.from_bytes: expected"),
    "an attribute": (lambda: setattr(Monitor(), "learn", "x"), r"Monitor: learn must be"),
    "a part of a kernel": (
        lambda: (Linear() + RBF(1.0).on(2)).check_width(2),
        r"Sum\.check_width: the kernel .* uses column 2",
    ),
    "columns": (lambda: RBF(1.0).on(2).check_width(2), r"OnColumns\.check_width: the kernel .* uses column 2"),
    "units": (lambda: RBF(1.0).in_units([1.0]).check_width(2), r"InUnits\.check_width: the kernel has units for 1"),
    "a function": (lambda: to_c(MODEL, dtype="single"), r"to_c: dtype must be one of"),
    "a function that needs a fitted model": (
        lambda: to_device(StreamingKernelPCA(max_atoms=8)),
        r"to_device needs a fitted StreamingKernelPCA",
    ),
    "wrong arguments": (lambda: KernelPCA().fit(), r"KernelPCA\.fit\(\) missing 1 required positional argument: 'X'$"),
    "wrong arguments of a class": (
        lambda: KernelPCA(1, n_components=2),
        r"KernelPCA\.__init__\(\) got multiple values for argument 'n_components'$",
    ),
}


@pytest.mark.parametrize(("call", "text"), CALLS.values(), ids=CALLS.keys())
def test_the_outermost_call_is_named_once(call, text):
    with pytest.raises((TypeError, ValueError), match=f"^{text}"):
        call()


def test_keys_of_a_bank_name_it(tmp_path):
    with Bank(tmp_path, MODEL.without_rows) as bank, pytest.raises(TypeError, match=r"^Bank: expected keys"):
        1.5 in bank  # noqa: B015


def test_errors_of_other_code_stay_as_they_are():
    def fail(X, Y):
        raise ValueError("mine")

    without_name = {}
    exec("def fail(X, Y): raise ValueError('mine')", without_name)
    for function in (fail, without_name["fail"]):
        with pytest.raises(ValueError, match=r"^mine$"):
            KernelPCA(kernel=kernels.Custom(function)).fit([[1.0]])


def test_a_refused_row_keeps_its_number_and_its_place():
    with pytest.raises(RowError, match=r"^KernelPCA\.fit: .* for row 1 of these") as caught:
        KernelPCA(kernel="linear").fit([[1.0], [1e140]])
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_import_errors_show_their_place(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match=r"^KernelPCA\.fit_transform: set_output.* needs polars"):
        KernelPCA(1).set_output(transform="polars").fit_transform([[1.0], [2.0]])


def test_a_quoted_error_has_no_place_of_its_own():
    with pytest.raises(CheckpointError, match=r"^Aggregate\.from_bytes: .* an Aggregate: this is not a checkpoint"):
        Aggregate.from_bytes(b"")


def fit_correlated_rows():
    rows = np.cumsum(np.random.default_rng(0).normal(size=(700, 2)), axis=0)
    model = StreamingKernelPCA(2, max_atoms=32).partial_fit(rows[:200])
    ChangeDetector(model, run_length=5000, n_healthy=500).update(rows[200:])


def find_an_older_generation(folder):
    checkpoints = Checkpointer(folder / "plant.npz")
    checkpoints.save(MODEL)
    checkpoints.save(MODEL).write_bytes(b"")
    checkpoints.latest()


WARNINGS = {
    "indefinite": lambda folder: KernelPCA(1, kernel=kernels.Sigmoid(1.0, coef0=-1.0)).fit([[0.0], [1.0], [2.0]]),
    "empty axes": lambda folder: KernelPCA(40, kernel="linear").fit_transform(np.eye(60)[:, :2]),
    "sparsity": lambda folder: SparseKernelPCA(1, kernel="linear", n_active=2, center=False).fit([[0.0], [1.0]]),
    "of a stream": lambda folder: StreamingKernelPCA(1, kernel="linear", n_active=9).fit([[1.0], [2.0]]).snapshot_,
    "changes": lambda folder: fit_correlated_rows(),
    "generations": find_an_older_generation,
}


@pytest.mark.parametrize("call", WARNINGS.values(), ids=WARNINGS.keys())
def test_warnings_point_at_the_line_that_called(call, tmp_path):
    with warnings.catch_warnings(record=True, action="always") as caught:
        call(tmp_path)
    assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize(
    ("call", "advice"),
    [(KernelPCA().fit, ", or fit a StreamingKernelPCA with"), (MODEL.partial_fit, ", or give the model"),
     (Monitor(StreamingKernelPCA()).update, ", or give its model"), (OutlierDetector().fit, ""),
     (ChangeDetector(MODEL).update, ""), (MODEL.novelty, ""), (MODEL.inverse_transform, ""), (Linear().matrix, "")],
)  # fmt: skip
def test_only_calls_that_can_learn_bad_rows_advise_how(call, advice):
    skip, use = ' missing="skip" to leave them out', ', missing="marginal" to use what they have'
    for X, remedy in [([[np.nan, 1.0]], skip + use), ([[np.inf, 1.0]], skip)]:
        with pytest.raises(ValueError, match=f"drop or impute such rows first{advice}{remedy if advice else ''}$"):
            call(X)


@pytest.mark.parametrize("watching", [Monitor(), ChangeDetector(MODEL)])
def test_misspelt_parameters_are_refused_whenever_they_are_set(watching):
    for name, meant in [("mode", r"did you mean 'model'\? "), ("gamma", "")]:
        advice = rf"^{type(watching).__name__}: '{name}' is not a parameter; {meant}the parameters are model, "
        with pytest.raises(AttributeError, match=advice):
            setattr(watching, name, None)
        with pytest.raises(TypeError, match=advice):
            type(watching)(**{name: None})
