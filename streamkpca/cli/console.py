"""Standard output and error of the command: facts, tables, JSON, warnings; and signals that stop it."""

import io
import json
import math
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

import click

Item = TypeVar("Item")

_STOPS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def escape_letters() -> None:
    """Let standard output and error escape letters that their code lacks: names of columns may hold any."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def printable(text: str) -> str:
    """Return text in one line, without control characters: names in other people's files may hold any."""
    line = " ".join(text.split())
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in line)


def write_count(n: int, noun: str) -> str:
    """Write a number with its noun, in the plural unless it is 1."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


def print_warning(message: str) -> None:
    """Print a warning as one line on standard error."""
    click.echo(printable(f"Warning: {message}"), err=True)


def print_json(found: dict[str, Any]) -> None:
    """Print an object on one line of standard output."""
    click.echo(json.dumps(replace_nan(found), allow_nan=False, default=str))


def replace_nan(value: Any) -> Any:
    """Replace NaN and infinity, which JSON lacks, by None."""
    if isinstance(value, dict):
        return {name: replace_nan(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [replace_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_value(value: Any) -> str:
    """Write what JSON holds for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        inside = {name.replace("_", " "): write_value(inner) for name, inner in value.items() if inner is not None}
        return ", ".join(f"{name} {inner}" for name, inner in inside.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(write_value, value))
    if isinstance(value, float):
        # Four digits would make 8.64e+04 of the seconds of a day.
        return f"{value:.0f}" if 9999.5 <= abs(value) < 1e15 else f"{value:.4g}"
    return printable(str(value))


def print_facts(title: str, facts: dict[str, Any], *, err: bool = False) -> None:
    """Print a heading, and names and values of what is not None or empty."""
    shown = {name.replace("_", " "): write_value(value) for name, value in facts.items() if value not in (None, [], {})}
    width = max(map(len, shown))
    click.echo("\n".join([f"\n{title}", *(f"  {name:{width}}  {value}" for name, value in shown.items())]), err=err)


class Signals:
    """Ctrl-C, SIGTERM and SIGHUP stop a loop over chunks where the model is whole: while it waits for the next chunk.

    A signal that comes while a chunk is learned waits for its end; a second one does not.
    """

    def __init__(self) -> None:
        self.number = 0
        self._is_working = False

    @contextmanager
    def handle(self) -> Iterator[None]:
        """Handle the signals inside; those that are ignored, as in background jobs, stay so."""
        before = {number: signal.getsignal(number) for number in _STOPS}
        for number, handler in before.items():
            if handler in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, self._receive)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def until_stopped(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield items until they end or a signal comes; signals wait while the caller works on one."""
        iterator = iter(items)
        while True:
            try:
                self._is_working = False
                # Asked after a signal can raise: one that came just before would wait for rows that may never come.
                if self.number:
                    break
                item = next(iterator)
                self._is_working = True
            except StopIteration:
                break
            except KeyboardInterrupt:
                self.number = self.number or signal.SIGINT
                break
            yield item
        # What follows, such as saving, is work too.
        self._is_working = True

    def leave_if_stopped(self, how_far: str) -> None:
        """End the command with the code of the signal, if one came."""
        if self.number:
            click.echo(f"Interrupted {how_far}", err=True)
            click.get_current_context().exit(128 + self.number)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        del frame
        is_second, self.number = self.number > 0, number
        if is_second or not self._is_working:
            raise KeyboardInterrupt
