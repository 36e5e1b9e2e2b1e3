import math
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca._core.parameters import check_choice, check_flag, check_integer, check_n_components, check_real, is_real

REALS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.integers(-5, 50), st.integers(-3, 3))
def test_integers_are_checked_against_the_lower_limit(value, least):
    if value >= least:
        assert check_integer("p", np.int64(value), least=least) == value
    else:
        with pytest.raises(ValueError, match=rf"p must be at least {least}, got {value}"):
            check_integer("p", value, least=least)


def test_anything_but_an_integer_is_a_type_error():
    for value in (True, np.True_, 1.0, "1", None, 1j, [1], np.array([1]), Decimal(1), math.nan):
        with pytest.raises(TypeError, match=r"p must be an integer of at least 0, got "):
            check_integer("p", value, least=0)


@given(REALS, st.booleans(), st.booleans())
def test_numbers_are_checked_against_the_interval(value, open_below, open_above):
    inside = (0.0 < value if open_below else 0.0 <= value) and (value < 1.0 if open_above else value <= 1.0)
    arguments = {"least": 0.0, "most": 1.0, "open_below": open_below, "open_above": open_above}
    if inside:
        assert check_real("p", value, **arguments) == value
    else:
        interval = re.escape(("(" if open_below else "[") + "0, 1" + (")" if open_above else "]"))
        with pytest.raises(ValueError, match=f"p must be a finite number in {interval}, got"):
            check_real("p", value, **arguments)


def test_numbers_without_a_finite_value_are_refused():
    # The last two are too large for a float.
    for value in (math.nan, math.inf, -math.inf, np.float32("nan"), 10**400, Fraction(10**400)):
        with pytest.raises(ValueError, match=r"p must be a finite number, got "):
            check_real("p", value)


def test_anything_but_a_real_number_is_a_type_error():
    for value in (True, np.False_, "0.5", None, 1j, [0.5], np.array([0.5]), Decimal("0.5")):
        with pytest.raises(TypeError, match=r"p must be a number, got "):
            check_real("p", value)


def test_words_are_checked_against_the_choices():
    assert check_choice("p", "a", choices=("a", "b")) == "a"
    with pytest.raises(ValueError, match=r"p must be one of 'a', 'b', got 'c'"):
        check_choice("p", "c", choices=("a", "b"))
    with pytest.raises(TypeError, match=r"p must be one of 'a', 'b', got 1"):
        check_choice("p", 1, choices=("a", "b"))


def test_flags_are_true_or_false_and_nothing_else():
    assert check_flag("p", np.True_) is True
    assert check_flag("p", False) is False
    for value in (0, 1, None, "yes", 1.0):
        with pytest.raises(TypeError, match=r"p must be True or False, got "):
            check_flag("p", value)


def test_components_are_a_number_of_axes_or_a_share():
    for value in (1, 5, np.int32(3), 0.5, np.float64(0.999), 1e-9):
        checked = check_n_components(value)
        assert checked == value
        assert type(checked) is (int if isinstance(value, int | np.integer) else float)


def test_components_outside_their_range_are_refused():
    for value in (0, -1, 0.0, 1.0, 2.0, -0.5, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"n_components.* must be "):
            check_n_components(value)


def test_components_of_another_type_are_refused():
    for value in (True, None, "mle", "10", [3], 2j):
        with pytest.raises(TypeError, match=r"n_components must be an integer of at least 1"):
            check_n_components(value)


def test_is_real():
    assert all(map(is_real, (1, 1.5, np.float32(1), Fraction(1, 2), math.nan)))
    assert not any(map(is_real, (True, np.True_, "1", None, 1j, Decimal(1))))
