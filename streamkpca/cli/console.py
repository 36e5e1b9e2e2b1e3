"""Standard output and standard error of the command: tables, JSON, progress, and errors of one line."""

import errno
import io
import json
import math
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from typing import Any, NoReturn

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from streamkpca.cli.wording import Worded, in_options

WRONG_USE = 2
INTERRUPTED = 128 + signal.SIGINT
# Key of a command's exit code, in the meta of its context, once a signal has stopped it.
STOPPED_WITH = "streamkpca.stopped_with"
READER_LEFT = 141

_NO_EDGE = 100_000
# What is wrong with a command line is said in fewer letters, however long its values are.
_LONGEST_USAGE = 500
_SECONDS_BETWEEN_LINES = 5.0

Report = Callable[[int, int, int], None]


class BadInput(click.ClickException, Worded):
    """An error in what the user gave; its message names the place and the remedy."""

    exit_code = WRONG_USE


@contextmanager
def one_line(path: str = "") -> Iterator[None]:
    """Turn a ValueError, a missing library and the system's errors, which may lack the `path`, into `BadInput`.

    What the library says of its parameters is said of options.
    """
    try:
        yield
    except OSError as error:
        # The reader of standard output may leave; that of a pipe with a name should not.
        if isinstance(error, BrokenPipeError) and error.filename is None:
            raise
        raise BadInput(_refusal(error, path)) from None
    except (ImportError, Worded) as error:
        raise BadInput(str(error)) from None
    except ValueError as error:
        raise BadInput(in_options(str(error))) from None


@contextmanager
def placed(where: str, reword: Callable[[str], str] = lambda text: text) -> Iterator[None]:
    """Begin what the library says of a file with its name, after rewording it."""
    try:
        yield
    except Worded:
        raise
    except ValueError as error:
        raise Worded(f"{where}: {reword(in_options(str(error)))}") from None


class Ordered(click.Group):
    """A group that lists its commands in the order in which they were added, and suggests one for a mistyped name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands' names."""
        del ctx
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named; of one that there is not, say which was meant."""
        name = args[0]
        if self.get_command(ctx, name) is None and name[:1] != "-":
            similar = get_close_matches(name, self.commands, 1, 0.5)
            meant = f"Did you mean {similar[0]!r}?" if similar else f"There are: {', '.join(self.commands)}."
            ctx.fail(f"No such command {name[:60]!r}. {meant}")
        return super().resolve_command(ctx, args)


class OneLineErrors(Ordered):
    """A group of commands whose every failure is one line on standard error and an exit code.

    0 done, 2 wrong use or bad input, 129 the terminal was closed, 130 stopped by Ctrl-C, 143 by SIGTERM, 141 the reader
    of standard output has left.
    """

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run the command and exit."""
        extra["standalone_mode"] = False
        # Names in files, and file names themselves, may hold letters that the terminal's encoding lacks.
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            code = super().main(*args, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            _say(error.format_message())
            code = WRONG_USE
        except click.NoSuchOption as error:
            say(_unknown_option(error))
            code = WRONG_USE
        except click.ClickException as error:
            remedy = "" if isinstance(error, BadInput) else " Try --help."
            message = error.format_message()
            if not isinstance(error, BadInput) and len(message) > _LONGEST_USAGE:
                message = f"{message[:_LONGEST_USAGE]}..."
            say(f"{message}{remedy}")
            code = WRONG_USE
        except (click.Abort, KeyboardInterrupt):
            say("interrupted")
            code = INTERRUPTED
        except OSError as error:
            _forget_output()
            say(_refusal(error, "standard output"))
            code = WRONG_USE
        except MemoryError:
            say("there is not enough memory for this; ask for fewer --max-atoms, or for fewer --chunk-rows at a time")
            code = WRONG_USE
        except Exception as error:
            # Any file and any option should have been refused before, and in better words.
            say(_own_error(error))
            code = WRONG_USE
        sys.exit(code if isinstance(code, int) else 0)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the command line, or print the help, whose pipe may be closed too."""
        try:
            return super().make_context(*args, **extra)
        except BrokenPipeError:
            _forget_output()
            raise click.exceptions.Exit(READER_LEFT) from None
        except KeyboardInterrupt:
            # Click would print an empty line.
            raise click.Abort from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen command; warnings become one line too."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _warning_printer()
                result = self._invoke(ctx)
            # With standard output closed (>&-), Python has none either.
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:
            _forget_output()
            ctx.exit(READER_LEFT)
        return result

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            pass
        except (click.ClickException, click.exceptions.Exit, OSError, MemoryError):
            raise
        except Exception:
            # Some extension modules turn a KeyboardInterrupt that reaches them during import into another error.
            if STOPPED_WITH not in ctx.meta:
                raise
        say("interrupted")
        ctx.exit(ctx.meta.get(STOPPED_WITH, INTERRUPTED))


@contextmanager
def show_progress(what: str, total: int | None, *, quiet: bool = False, lines: bool = False) -> Iterator[Report]:
    """Show a progress bar on standard error if that is a terminal, and yield the function that moves it.

    It takes the position reached, out of `total` if that is known, the rows done and the atoms held. With `lines`,
    standard error that is no terminal gets a line every five seconds instead.
    """
    console = Console(stderr=True)
    has_bar = console.is_terminal and not console.is_dumb_terminal and not quiet
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeElapsedColumn(),
        console=console,
        disable=not has_bar,
        transient=True,
        # Otherwise it writes standard output to its own terminal, even where that was redirected to a file.
        redirect_stdout=False,
    )
    start = last_line = time.perf_counter()
    task = bar.add_task(what, total=total, detail="")

    def report(position: int, n_rows: int, n_atoms: int) -> None:
        nonlocal last_line
        now = time.perf_counter()
        facts = [f"{n_rows:,} rows", f"{n_rows / max(now - start, 1e-9):,.0f} rows/s", f"{n_atoms} atoms"]
        bar.update(task, completed=position, detail="  ".join(facts))
        if lines and not has_bar and not quiet and now - last_line >= _SECONDS_BETWEEN_LINES:
            last_line = now
            share = [] if total is None else [f"{position / total:.0%}"]
            say(f"{what}: {', '.join(share + facts)}")

    with bar:
        yield report


def say(message: str) -> None:
    """Print one line about the work on standard error."""
    _say(f"streamkpca: {printable(' '.join(message.split()))}")


def print_warning(message: str) -> None:
    """Print a warning as one line on standard error."""
    say(f"warning: {message}")


def print_json(found: dict[str, Any]) -> None:
    """Print an object on one line of standard output; NaN and infinity, which JSON lacks, become null."""
    click.echo(json.dumps(_known(found), allow_nan=False))


def print_facts(title: str, facts: Sequence[tuple[str, str]]) -> None:
    """Print a heading and pairs of a name and a value on standard output."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(escape(name), escape(printable(value)))
    _print(title, table)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a heading and a table of right-aligned columns on standard output."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in header:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*(escape(printable(cell)) for cell in row))
    _print(title, table)


def _print(title: str, table: Table) -> None:
    console = Console()
    if not console.is_terminal:
        # A file has no edge at which long lines fold.
        console.width = _NO_EDGE
    with console.capture() as capture:
        console.print(f"[bold]{escape(title)}[/]", soft_wrap=True)
        console.print(table)
    # Through click, not rich: rich exits with a code of its own when the pipe is closed.
    click.echo("\n".join(line.rstrip() for line in capture.get().rstrip("\n").splitlines()) + "\n")


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _known(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_known(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _say(text: str) -> None:
    # Where nothing can be said, the work and the exit code still count.
    with suppress(OSError):
        click.echo(text, err=True)


def _unknown_option(error: click.NoSuchOption) -> str:
    """Say which option was meant, or which commands have the one that was given."""
    name, context = error.option_name, error.ctx
    if context is None:
        return f"No such option {name!r}. Try --help."

    def options(command: click.Command) -> list[str]:
        made = command.get_params(context)
        return [option for one in made for option in (*one.opts, *one.secondary_opts) if option[:2] == "--"]

    def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
        for inner, command in group.commands.items():
            yield f"{path}{inner}", command
            if isinstance(command, click.Group):
                yield from commands(command, f"{path}{inner} ")

    root = context.find_root().command
    having = [path for path, one in commands(root) if name in options(one)] if isinstance(root, click.Group) else []
    similar = get_close_matches(name, options(context.command), 1)
    if having:
        meant = f"These commands have it: {', '.join(having)}. "
    else:
        meant = f"Did you mean {similar[0]}? " if similar else ""
    return f"No such option {name[:60]!r}. {meant}Try --help."


def _own_error(error: Exception) -> str:
    """Say what is wrong with the command itself; with STREAMKPCA_TRACEBACK, show where."""
    if os.environ.get("STREAMKPCA_TRACEBACK"):
        traceback.print_exception(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"stopped by a mistake of its own ({type(error).__name__} in {os.path.basename(last.filename)}, line "
        f"{last.lineno}: {str(error)[:200]}); please report it together with the command line and the file"
    )


def _forget_output() -> None:
    """Redirect standard output to nowhere: otherwise Python complains at exit about what it cannot write."""
    # There is none if it was closed, and none of the system's in tests.
    with suppress(AttributeError, OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def printable(text: str) -> str:
    """Escape control characters: names in other people's files must not control the terminal."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def _refusal(error: OSError, path: str) -> str:
    where = path if error.filename is None else error.filename
    is_full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
    remedy = "make room, or write elsewhere" if is_full else "check the path and your permissions"
    return f"{where}: {error.strerror or error}; {remedy}".removeprefix(": ")


def _warning_printer() -> Callable[..., None]:
    """Make the function that prints a warning as one line, and each text once, wherever it comes from."""
    printed: set[str] = set()

    def show(message: Warning | str, *where: Any, **more: Any) -> None:
        del where, more
        if str(message) not in printed:
            printed.add(str(message))
            print_warning(in_options(str(message)))

    return show
