import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from streamkpca._core.parameters import check_choice, check_flag, check_integer, check_n_components, check_real

NOT_FINITE = (math.nan, math.inf, -math.inf, np.float32("nan"))
REFUSED = [
    (lambda value: check_integer("p", value, least=0), TypeError, "p must be an integer of at least 0, got ",
     (True, np.True_, 1.0, "1", None, 1j, [1], np.array([1]), Decimal(1), math.nan)),
    # The last two are too large for a float.
    (lambda value: check_real("p", value), ValueError, "p must be a finite number, got ",
     (*NOT_FINITE, 10**400, Fraction(10**400))),
    (lambda value: check_real("p", value), TypeError, "p must be a number, got ",
     (True, np.False_, "0.5", None, 1j, [0.5], np.array([0.5]), Decimal("0.5"))),
    (lambda value: check_choice("p", value, choices=("a", "b")), ValueError, "p must be one of 'a', 'b', got 'c'", "c"),
    (lambda value: check_choice("p", value, choices=("a", "b")), TypeError, "p must be one of 'a', 'b', got 1", (1,)),
    (lambda value: check_flag("p", value), TypeError, "p must be True or False, got ", (0, 1, None, "yes", 1.0)),
    (check_n_components, ValueError, "n_components.* must be ", (0, -1, 0.0, 1.0, 2.0, -0.5, *NOT_FINITE)),
    (check_n_components, TypeError, "n_components must be an integer of at least 1", (True, None, "mle", [3], 2j)),
]  # fmt: skip


@pytest.mark.parametrize(("check", "error", "message", "values"), REFUSED)
def test_values_of_another_kind_are_refused(check, error, message, values):
    for value in values:
        with pytest.raises(error, match=message):
            check(value)


def test_values_are_returned_as_plain_ones():
    assert check_choice("p", "a", choices=("a", "b")) == "a"
    assert check_flag("p", np.True_) is True
    assert check_flag("p", False) is False
    for value in (1, 5, np.int32(3), 0.5, np.float64(0.999), 1e-9):
        checked = check_n_components(value)
        assert checked == value
        assert type(checked) is (int if isinstance(value, int | np.integer) else float)


@pytest.mark.parametrize(("percent", "share"), [(99, "0.99"), (2.0, "0.02"), (99.9, "0.999")])
def test_a_share_given_in_percent_is_refused_with_what_was_meant(percent, share):
    with pytest.raises(ValueError, match=rf"in \(0, 1\), got {percent}; did you mean {share}\?$"):
        check_real("quantile", percent, least=0.0, most=1.0, open_below=True, open_above=True)


@pytest.mark.parametrize(("value", "most"), [(1.5, 1.0), (100.0, 1.0), (-0.5, 1.0), (50.0, 10.0)])
def test_other_numbers_out_of_range_are_no_percentages(value, most):
    with pytest.raises(ValueError, match=rf"got {value}$"):
        check_real("p", value, least=0.0, most=most)
