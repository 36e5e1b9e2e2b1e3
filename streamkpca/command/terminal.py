"""What the command shows and how it stops: progress, tables, one-line errors, Ctrl-C at a safe moment."""

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

WRONG_USE = 2
INTERRUPTED = 128 + signal.SIGINT
READER_LEFT = 141

Report = Callable[[int, int, int], None]


class BadInput(click.ClickException):
    """Raised for input that cannot be used; its message names the place and the remedy."""

    exit_code = WRONG_USE


class OneLineErrors(click.Group):
    """A group of commands whose every failure is one line on standard error and an exit code.

    Exit codes: 0 fine, 2 wrong usage or bad input, 130 stopped by Ctrl-C, 141 nobody reads the output.
    """

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run the command and leave the process."""
        extra["standalone_mode"] = False
        try:
            code = super().main(*args, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            code = WRONG_USE
        except click.ClickException as error:
            remedy = "" if isinstance(error, BadInput) else " Try --help."
            click.echo(f"streamkpca: {' '.join(error.format_message().split())}{remedy}", err=True)
            code = WRONG_USE
        except (click.Abort, KeyboardInterrupt):
            click.echo("streamkpca: interrupted", err=True)
            code = INTERRUPTED
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen command; warnings become one line too."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # What is still buffered has no reader: without this the interpreter complains as it leaves.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(READER_LEFT)
        return result


class Interruption:
    """Ctrl-C that waits while a model changes, and stops at once while rows are awaited.

    A model half-way through a block must not be asked what it has learned. Inside `shielded` Ctrl-C is
    remembered and raised at the end; a second one gives up at once, results and all.
    """

    def __init__(self) -> None:
        self._shields = 0
        self._pending = False

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Take over Ctrl-C; give it back at the end."""
        before = signal.getsignal(signal.SIGINT)
        if before is not signal.default_int_handler:
            # Ignored (a background job) or somebody else's: leave it so.
            yield
            return
        signal.signal(signal.SIGINT, self.receive)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Hold Ctrl-C back until the work inside is done.

        Raises
        ------
        KeyboardInterrupt
            At the end, if Ctrl-C came in between.
        """
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if self._pending:
            self._pending = False
            raise KeyboardInterrupt

    def receive(self, signum: int, frame: FrameType | None) -> None:
        """Take one press of Ctrl-C.

        Parameters
        ----------
        signum, frame : int, frame or None
            As the operating system hands them to a signal handler.

        Raises
        ------
        KeyboardInterrupt
            Outside `shielded`.
        click.Abort
            At the second press inside.
        """
        if not self._shields:
            raise KeyboardInterrupt
        if self._pending:
            raise click.Abort
        self._pending = True


@contextmanager
def show_progress(what: str, total: int | None) -> Iterator[Report]:
    """Show a progress bar with rows a second on standard error, if that is a terminal.

    Parameters
    ----------
    what : str
        Said in front of the bar.
    total : int or None
        Position that is the end; None where it is unknown.

    Yields
    ------
    callable
        To be called with the position reached, the rows done and the atoms held.
    """
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    start = time.perf_counter()
    task = bar.add_task(what, total=total, detail="")

    def report(position: int, n_rows: int, n_atoms: int) -> None:
        rate = n_rows / max(time.perf_counter() - start, 1e-9)
        bar.update(task, completed=position, detail=f"{n_rows:,} rows  {rate:,.0f} rows/s  {n_atoms} atoms")

    with bar:
        yield report


def print_facts(title: str, facts: Sequence[tuple[str, str]]) -> None:
    """Print pairs of a name and a value on standard output.

    Parameters
    ----------
    title : str
        Heading.
    facts : sequence of (str, str)
        The pairs.
    """
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(escape(name), escape(value))
    _print(title, table)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of right-aligned columns on standard output.

    Parameters
    ----------
    title : str
        Heading.
    header : sequence of str
        Names of the columns.
    rows : sequence of sequence of str
        Their cells.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in header:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*map(escape, row))
    _print(title, table)


def _print(title: str, table: Table) -> None:
    console = Console()
    with console.capture() as capture:
        console.print(f"[bold]{escape(title)}[/]", soft_wrap=True)
        console.print(table)
    # Through click, not rich: rich answers a closed pipe by leaving the process with a code of its own.
    click.echo("\n".join(line.rstrip() for line in capture.get().rstrip("\n").splitlines()) + "\n")


def _show_warning(message: Warning | str, *where: Any, **more: Any) -> None:
    del where, more
    click.echo(f"streamkpca: warning: {' '.join(str(message).split())}", err=True)
