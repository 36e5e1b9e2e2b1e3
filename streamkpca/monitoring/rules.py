"""Rules by which events are not reported: they are short, or all that is odd in them is to be ignored."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from streamkpca._core.parameters import check_integer, check_real
from streamkpca.monitoring.causes import DIRECTIONS, Cause
from streamkpca.monitoring.events import Event
from streamkpca.rows.times import Time

Rules = Mapping[str | int, tuple[str | float, ...]]


def is_count(value: Any) -> bool:
    """Tell whether a value is a whole number; numpy takes its durations for such."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, np.timedelta64)


def as_seconds(name: str, value: Any) -> float:
    """Return a positive duration, in seconds if it is a timedelta."""
    if isinstance(value, (timedelta, np.timedelta64)):
        if np.datetime_data(np.timedelta64(value).dtype)[0] in ("Y", "M"):
            raise TypeError(f"{name} must have a length, but months and years differ, got {value!r}; give days")
        value = float(np.timedelta64(value) / np.timedelta64(1, "s"))
    return check_real(name, value, least=0.0, open_below=True)


def check_rules(ignore: Any) -> Rules:
    """Return for each feature its rules: directions, and largest differences from what is expected."""
    # A list of pairs is how files hold them.
    pairs = list(ignore.items()) if isinstance(ignore, Mapping) else [] if ignore is None else ignore
    if not isinstance(pairs, list) or not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        raise TypeError(
            f"expected ignore to be a dictionary of features and rules but got {ignore!r}; pass "
            '{"disk": "below"}, for example'
        )
    rules: dict[str | int, tuple[str | float, ...]] = {}
    for feature, given in pairs:
        key = feature if isinstance(feature, str) else check_integer("a feature of ignore", feature, least=0)
        several = list(given) if isinstance(given, (list, tuple)) else [given]
        rules[key] = tuple(_check_rule(key, rule) for rule in several)
    return rules


def _check_rule(feature: str | int, rule: Any) -> str | float:
    if not isinstance(rule, str):
        return check_real(f"ignore[{feature!r}]", rule, least=0.0)
    if rule not in DIRECTIONS:
        raise ValueError(
            f"ignore[{feature!r}] should be 'above', 'below' or the largest difference to ignore, got {rule!r}"
        )
    return rule


def check_known(rules: Rules, n_features: int, names: list[str] | None) -> None:
    """Refuse rules for features that rows do not have."""
    known = names if names is not None else range(n_features)
    unknown = [feature for feature in rules if feature not in known]
    if unknown:
        remedy = f"name some of {names}" if names is not None else f"rows have no names, so use 0 to {n_features - 1}"
        raise ValueError(f"ignore has rules for {unknown[0]!r}, which is no feature of the rows; {remedy}")


def time_passed(first: Time | None, last: Time | None) -> float:
    """Return the time from one row to another, in seconds if these are dates; 0 without times."""
    passed: Any = 0.0 if first is None or last is None else last - first  # type: ignore[operator]
    return float(passed / np.timedelta64(1, "s") if isinstance(passed, np.timedelta64) else passed)


def is_short(event: Event, least: float | None) -> bool:
    """Tell whether an event has fewer rows than an integer says, or lasts less than a float says, in units of times."""
    if least is None or isinstance(least, int):
        return least is not None and event.end - event.start < least
    return event.start_time is not None and time_passed(event.start_time, event.end_time) < least


def is_ignored(causes: Sequence[Cause], rules: Rules) -> bool:
    """Tell whether each of an event's features deviates in a direction, or by no more, than one of its rules says."""
    return bool(causes) and all(any(_holds(rule, cause) for rule in rules.get(cause.feature, ())) for cause in causes)


def _holds(rule: str | float, cause: Cause) -> bool:
    return cause.direction == rule if isinstance(rule, str) else abs(cause.value - cause.expected) <= rule
