"""The parameters of a monitor: what checks each of them, and by which rules events are not reported."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from streamkpca._core.parameters import check_choice, check_integer, check_real
from streamkpca.models.saving import ParameterCheck
from streamkpca.models.streaming import StreamingKernelPCA, check_model
from streamkpca.monitoring.causes import DIRECTIONS, Cause
from streamkpca.monitoring.events import Event
from streamkpca.monitoring.judging import SHORTEST_CHUNK
from streamkpca.monitoring.learning import LEARN
from streamkpca.monitoring.periods import as_seconds, check_length, time_passed

# Share of healthy rows that may begin no event, by default: a row of once in 333. On sixteen families of real streams,
# once in 100 brought 0.6 more false events in 1,000 healthy rows for the same faults.
QUANTILE = 0.997
# Seconds of the times that a rate of events may be given in.
_TIMES = {"hour": 3600.0, "day": 86_400.0, "week": 604_800.0}

Rules = Mapping[str | int, tuple[str | float, ...]]


def check_features(rules: Rules, n_features: int, names: list[str] | None) -> None:
    """Refuse rules for features that rows do not have."""
    features = range(n_features) if names is None else names
    for feature in rules:
        if feature not in features:
            remedy = f"rows have no names, so use 0 to {n_features - 1}" if names is None else f"name some of {names}"
            raise ValueError(f"ignore has rules for {feature!r}, which is no feature of the rows; {remedy}")


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


def _check_model(name: str, model: Any) -> StreamingKernelPCA:
    found = check_model(model)
    if found.max_atoms is None and found.reservoir_size == 0:
        raise ValueError(
            "with max_atoms=None, thresholds come from the model's random sample, but reservoir_size is 0; "
            "give the model reservoir_size=512 or a number of atoms"
        )
    return found


def _check_most_events(name: str, value: Any) -> float | tuple[float, float]:
    """Return a rate a row, or a number of events and the seconds that it is for."""
    if isinstance(value, tuple | list) and len(value) == 2:
        # As files hold it.
        return (
            check_real(name, value[0], least=0.0, open_below=True),
            check_real(name, value[1], least=0.0, open_below=True),
        )
    if isinstance(value, str):
        number, _, unit = value.partition("/")
        if unit not in _TIMES or not re.fullmatch(r"\d+(\.\d+)?", number):
            raise ValueError(
                f'expected {name} as a rate a row, such as 1 / 1000, or in a time, such as "2/day" '
                f"(hour, day, week), but got {value!r}"
            )
        return check_real(name, float(number), least=0.0, open_below=True), _TIMES[unit]
    return check_real(name, value, least=0.0, most=1.0, open_below=True)


def check_rules(name: str, ignore: Any) -> Rules:
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
        several = given if isinstance(given, (list, tuple)) else [given]
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


# Files hold them all, but for the model, which has its own fields.
PARAMETER_CHECKS = {
    "model": ParameterCheck(_check_model),
    "period": ParameterCheck(partial(check_length, least=2), is_optional=True),
    "quantile": ParameterCheck(partial(check_real, least=0.0, most=1.0, open_below=True, open_above=True)),
    "most_events": ParameterCheck(_check_most_events, is_optional=True),
    "learn": ParameterCheck(partial(check_choice, choices=LEARN), is_fixed=False),
    "accept_after": ParameterCheck(partial(check_integer, least=SHORTEST_CHUNK), is_optional=True, is_fixed=False),
    "max_gap": ParameterCheck(as_seconds, is_optional=True, is_fixed=False),
    "end_after": ParameterCheck(partial(check_integer, least=1), is_fixed=False),
    "min_duration": ParameterCheck(partial(check_length, least=1), is_optional=True, is_fixed=False),
    "ignore": ParameterCheck(check_rules, is_fixed=False),
}
