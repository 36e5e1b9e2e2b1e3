import pytest

from streamkpca.kernels import RBF
from streamkpca.stream.settings import StreamSettings

DEFAULTS = {
    "n_components": 3,
    "kernel": "rbf",
    "max_atoms": 8,
    "tolerance": 1e-3,
    "noise_variance": "auto",
    "n_active": None,
    "axes": "ritz",
    "center": True,
    "half_life": None,
    "block_size": 16,
    "refit_every": 64,
    "reservoir_size": 32,
    "on_bad_rows": "raise",
    "random_state": 0,
    "dtype": "float64",
}


def checked(**changes):
    return StreamSettings.checked(**(DEFAULTS | changes), where="here")


def test_settings_are_values():
    assert checked() == checked()
    assert checked(kernel=RBF()) == checked()
    assert checked(half_life=7).half_life == 7.0


def test_who_asks_for_every_row_gets_no_pruning():
    assert checked(max_atoms=None, tolerance=0.0).refit.noise_variance is None
    assert checked(max_atoms=None, tolerance=0.0, axes="likelihood").refit.noise_variance == "auto"
    assert checked(max_atoms=None, tolerance=0.0, noise_variance=0.5).refit.noise_variance == 0.5


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"half_life": 0}, ValueError, r"here: half_life must be a finite number in \(0, inf\), got 0"),
        ({"half_life": -2.0}, ValueError, "half_life .* got -2.0"),
        ({"half_life": float("nan")}, ValueError, "half_life .* got nan"),
        ({"half_life": float("inf")}, ValueError, "half_life .* got inf"),
        ({"half_life": "day"}, TypeError, "here: half_life must be a number, got 'day'"),
        ({"half_life": True}, TypeError, "half_life must be a number, got True"),
        ({"reservoir_size": -1}, ValueError, "here: reservoir_size must be at least 0, got -1"),
        ({"reservoir_size": 2.5}, TypeError, "reservoir_size must be an integer .* got 2.5"),
        ({"random_state": -1}, ValueError, "here: random_state must be at least 0, got -1"),
        ({"random_state": "seed"}, TypeError, "random_state must be an integer .* got 'seed'"),
        ({"on_bad_rows": "drop"}, ValueError, "here: on_bad_rows must be one of 'raise', 'skip', got 'drop'"),
        ({"on_bad_rows": None}, TypeError, "on_bad_rows must be one of 'raise', 'skip', got None"),
        ({"n_active": 9}, ValueError, "here: n_active=9 atoms cannot be active with max_atoms=8; ask for fewer"),
        ({"max_atoms": 0}, ValueError, "max_atoms must be at least 1, got 0"),
        ({"tolerance": 1.0}, ValueError, "tolerance .* got 1.0"),
        ({"dtype": "float16"}, ValueError, "here: dtype must be one of 'float64', 'float32', got 'float16'"),
        ({"dtype": float}, TypeError, "here: dtype must be one of 'float64', 'float32', got <class 'float'>"),
        ({"block_size": 1}, ValueError, "block_size must be at least 2, got 1"),
    ],
    ids=repr,
)
def test_nonsense_is_named(changes, error, message):
    with pytest.raises(error, match=message):
        checked(**changes)


def test_the_interval_of_refits_is_what_was_asked_for_or_grows_with_the_atoms():
    assert checked(refit_every=7).refit_interval(500) == 7
    assert checked(refit_every="auto").refit_interval(500) == 64000
    assert checked(refit_every="auto").refit_interval(3) == 16384
    assert checked(refit_every="auto", half_life=1000.0).refit_interval(500) == 250.0
    assert checked(refit_every=900, half_life=1000.0).refit_interval(500) == 900
