"""Ctrl-C, SIGTERM and SIGHUP: they stop a command at a moment when its model is whole."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import click

from streamkpca.cli.console import INTERRUPTED, STOPPED_WITH, say
from streamkpca.cli.undisturbed import STOPS


class SignalGuard:
    """A handler of Ctrl-C, SIGTERM and SIGHUP that waits while a model changes, and stops at once otherwise.

    A model half-way through a block cannot tell what it has learned. Inside `deferred` the first signal is remembered
    and raised at the end; a second one aborts at once, and results are lost. `exit_code` is that of the stopped
    command: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.
    """

    def __init__(self) -> None:
        self.exit_code = INTERRUPTED
        self._n_deferring = 0
        self._pending = False

    @property
    def is_deferring(self) -> bool:
        """Whether signals have to wait."""
        return self._n_deferring > 0

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle these signals inside, and restore the handlers from before at the end."""
        replaced = []
        try:
            for signum in STOPS:
                default = signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL
                # A signal that is ignored, as in background jobs, or that has another handler stays so.
                if (before := signal.getsignal(signum)) == default:
                    signal.signal(signum, self.receive)
                    replaced.append((signum, before))
            yield
        finally:
            for signum, before in replaced:
                signal.signal(signum, before)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer signals until the work inside is done, then raise KeyboardInterrupt if one came."""
        self._n_deferring += 1
        try:
            yield
        finally:
            self._n_deferring -= 1
        if self._pending and not self._n_deferring:
            self._pending = False
            self._note_stop()
            raise KeyboardInterrupt

    def receive(self, signum: int, frame: FrameType | None) -> None:
        """Handle a signal: raise KeyboardInterrupt, or inside `deferred` remember it, and abort at the second."""
        self.exit_code = 128 + signum
        if self._n_deferring and not self._pending:
            self._pending = True
            return
        self._note_stop()
        if self._n_deferring:
            raise click.Abort
        raise KeyboardInterrupt

    def _note_stop(self) -> None:
        """Note for the command's end, in the context that its parts share, that it was stopped and by what."""
        if (context := click.get_current_context(silent=True)) is not None:
            context.meta[STOPPED_WITH] = self.exit_code

    def leave(self, how_far: str) -> NoReturn:
        """Tell on standard error how far the stopped command got, and exit with its code."""
        say(how_far)
        click.get_current_context().exit(self.exit_code)
