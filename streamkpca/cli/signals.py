"""How a command stops: signals at a safe moment."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import click

from streamkpca.cli.console import INTERRUPTED

# What stops a command, and what Python does about it unless somebody asks for something else.
_STOPS = ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL))


class Interruption:
    """Ctrl-C and SIGTERM that wait while a model changes, and stop at once while rows are awaited.

    A model half-way through a block must not be asked what it has learned. Inside `shielded` a signal is
    remembered and raised at the end; a second one gives up at once, results and all.

    Attributes
    ----------
    exit_code : int
        Of a command that was stopped: 130 after Ctrl-C, 143 after SIGTERM.
    """

    def __init__(self) -> None:
        self.exit_code = INTERRUPTED
        self._shields = 0
        self._pending = False

    @property
    def is_shielded(self) -> bool:
        """Whether signals have to wait."""
        return self._shields > 0

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Take over Ctrl-C and SIGTERM; give them back at the end."""
        taken = []
        try:
            for signum, default in _STOPS:
                # Ignored (a background job) or somebody else's: leave it so.
                if (before := signal.getsignal(signum)) == default:
                    signal.signal(signum, self.receive)
                    taken.append((signum, before))
            yield
        finally:
            for signum, before in taken:
                signal.signal(signum, before)

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Hold signals back until the work inside is done.

        Raises
        ------
        KeyboardInterrupt
            At the end, if one came in between.
        """
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if self._pending and not self._shields:
            self._pending = False
            raise KeyboardInterrupt

    def receive(self, signum: int, frame: FrameType | None) -> None:
        """Take a signal that asks to stop.

        Parameters
        ----------
        signum, frame : int, frame or None
            As the operating system hands them to a signal handler.

        Raises
        ------
        KeyboardInterrupt
            Outside `shielded`.
        click.Abort
            At the second one inside.
        """
        self.exit_code = 128 + signum
        if not self._shields:
            raise KeyboardInterrupt
        if self._pending:
            raise click.Abort
        self._pending = True

    def leave(self, how_far: str) -> NoReturn:
        """Say how far a command got that was stopped, and leave it.

        Parameters
        ----------
        how_far : str
            Said on standard error.
        """
        click.echo(f"streamkpca: {how_far}", err=True)
        click.get_current_context().exit(self.exit_code)
