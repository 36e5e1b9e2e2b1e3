import inspect

import pytest

from streamkpca import StreamingKernelPCA
from streamkpca.kernels import RBF
from streamkpca.stream.parameters import PARAMETERS, Settings
from streamkpca.stream.transitions import refit_interval

DEFAULTS = {parameter.name: parameter.default for parameter in PARAMETERS} | {"max_atoms": 8, "block_size": 16}


def checked(**changes):
    return Settings.make(**(DEFAULTS | changes))


def test_the_estimator_has_the_parameters_of_the_table_in_their_order():
    arguments = inspect.signature(StreamingKernelPCA).parameters.values()
    table = [(parameter.name, parameter.default) for parameter in PARAMETERS]
    assert [(argument.name, argument.default) for argument in arguments] == table
    for parameter in PARAMETERS:
        value = parameter.check_value(parameter.default)
        assert parameter.name == "kernel" or value == parameter.default


def test_parameters_that_concern_the_axes_alone_are_told():
    assert {parameter.name for parameter in PARAMETERS if parameter.concerns_axes} == {
        "n_components", "noise_variance", "n_active", "axes",
    }  # fmt: skip


def test_settings_are_values():
    assert checked() == checked()
    assert checked(kernel=RBF()) == checked()
    assert checked(half_life=7).half_life == 7.0


def test_keeping_every_row_prunes_nothing():
    assert checked(max_atoms=None, tolerance=0.0).refit.noise_variance is None
    assert checked(max_atoms=None, tolerance=0.0, axes="likelihood").refit.noise_variance == "auto"
    assert checked(max_atoms=None, tolerance=0.0, noise_variance=0.5).refit.noise_variance == 0.5


def test_parameters_that_are_not_given_have_the_defaults_of_the_estimator():
    assert Settings.make(kernel="linear") == StreamingKernelPCA(kernel="linear").settings()
    with pytest.raises(TypeError, match=r"^Settings.make: expected parameters .* but got atom, axe; the "):
        Settings.make(axe="ritz", atom="rows")


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"half_life": 0}, ValueError, r"half_life must be a finite number in \(0, inf\), got 0"),
        ({"half_life": "day"}, TypeError, "half_life must be a number, got 'day'"),
        ({"reservoir_size": -1}, ValueError, "reservoir_size must be at least 0, got -1"),
        ({"missing": "drop"}, ValueError, "missing must be one of 'raise', 'skip', 'marginal', got 'drop'"),
        ({"n_active": 9}, ValueError, "n_active=9 atoms cannot be active with max_atoms=8; ask for fewer"),
        ({"atoms": "fixed"}, ValueError, "atoms must be one of 'moved', 'rows', got 'fixed'"),
        ({"axes": "best"}, ValueError, "axes must be one of 'ritz', 'likelihood', got"),
        ({"noise_variance": "low"}, ValueError, "noise_variance must be a positive number, 'auto' or None, got"),
        ({"noise_variance": 0.5, "n_active": 2}, ValueError, "noise_variance=0.5 and n_active=2 both decide"),
        ({"center": 1}, TypeError, "center must be True or False, got 1"),
        ({"refit_every": None}, TypeError, "refit_every must be an integer of at least 1, got None"),
        ({"kernel": None}, TypeError, "kernel must be"),
    ],
    ids=repr,
)
def test_bad_values_are_refused_by_name(changes, error, message):
    with pytest.raises(error, match=message):
        checked(**changes)


def test_the_interval_of_refits_is_the_one_given_or_grows_with_the_atoms():
    assert refit_interval(checked(refit_every=7), 500) == 7
    assert refit_interval(checked(refit_every="auto"), 500) == 64000
    assert refit_interval(checked(refit_every="auto"), 3) == 16384
    assert refit_interval(checked(refit_every="auto", half_life=1000.0), 500) == 250.0
    assert refit_interval(checked(refit_every=900, half_life=1000.0), 500) == 900


def test_atoms_move_only_within_a_budget():
    assert checked().moves_atoms
    assert not checked(atoms="rows").moves_atoms
    # Without a budget, rows are admitted until all is explained; moved atoms could explain no more.
    assert not checked(max_atoms=None).moves_atoms
