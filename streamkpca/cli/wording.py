"""The library's errors and warnings in the language of the command: options instead of arguments."""

import re
from collections.abc import Callable

from streamkpca.stream.parameters import PARAMETERS

# What a monitor keeps for ever, by the names of its arguments.
MONITOR_PARAMETERS = ("quantile", "lags", "smoothing", "learn", "accept_after")


class Worded(ValueError):
    """An error whose message is in the language of the command already."""


def option_of(name: str) -> str:
    """Return the option of a parameter: ``--max-atoms`` for ``max_atoms``."""
    return "--components" if name == "n_components" else f"--{name.replace('_', '-')}"


_OPTIONS = {name: option_of(name) for name in (*(one.name for one in PARAMETERS), *MONITOR_PARAMETERS)}
# Words that are also English stand for options only where a value or "must be" follows.
_NAMES = "|".join(sorted(_OPTIONS, key=len, reverse=True))
_LONG_NAMES = "|".join(sorted((name for name in _OPTIONS if "_" in name), key=len, reverse=True))
_ALONE = r"(?<![\w/.'\"-])"

_FROM = {"(": "above", "[": "of at least"}
_TO = {")": "below", "]": "at most"}


def in_options(message: str) -> str:
    """Reword a message of the library: its parameters become options, intervals and names of methods plain English.

    Examples
    --------
    >>> in_options("fit: n_components must be at least 1, got 0")
    'fit: --components must be at least 1, got 0'
    >>> in_options("StreamingKernelPCA.partial_fit: tolerance must be a finite number in [0, 1), got 1.0")
    '--tolerance must be a number of at least 0 and below 1, got 1.0'
    >>> in_options("axes='likelihood' needs a likelihood, but noise_variance=None asks for none")
    '--axes likelihood needs a likelihood, but --noise-variance none asks for none'
    """
    for pattern, written in _RULES:
        message = pattern.sub(written, message)
    return message


def _with_value(found: re.Match[str]) -> str:
    name, value = found[1], found[2].strip("'\"")
    if value in ("True", "False"):
        return _OPTIONS[name] if value == "True" else f"--no-{name}"
    return f"{_OPTIONS[name]} {'none' if value == 'None' else value}"


def _interval(found: re.Match[str]) -> str:
    below, least, most, above = found.groups()
    ends = [] if least == "-inf" else [f"{_FROM[below]} {least}"]
    ends += [] if most == "inf" else [f"{_TO[above]} {most}"]
    return f"a number {' and '.join(ends)}"


_RULES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    # The user of a command has called no method.
    (re.compile(r"^(?:[A-Z]\w*\.)?(?:partial_fit|refit|novelty_threshold|novelty|transform|load|merge|to_c|to_onnx|"
                r"contributions|update|sparsity_path|kernel): "), ""),
    (re.compile(r"^(?:StreamingKernelPCA|Monitor)(?:\.\w+)?: "), ""),
    (re.compile(rf"{_ALONE}({_NAMES})=('[^']*'|[^\s,;:)]+)"), _with_value),
    (re.compile(rf"{_ALONE}({_LONG_NAMES})(?![\w/.=-])"), lambda found: _OPTIONS[found[1]]),
    (re.compile(rf"(^|: )({_NAMES})(?=,? (?:must be|as a share))"), lambda found: f"{found[1]}{_OPTIONS[found[2]]}"),
    (re.compile(r"a finite number in ([\[(])([^,\s]+), ([^\])\s]+)([\])])"), _interval),
    (re.compile(r"give in_units larger units"), "divide the column by a power of ten"),
    (re.compile(r"scale the features down"), "divide the columns by a power of ten"),
    (re.compile(r"(?<=\d) features?\b"), " columns"),
)  # fmt: skip
