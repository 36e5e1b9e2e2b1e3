"""The state of a stream: blocks, the refit schedule, publishing."""

import warnings
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from streamkpca.basis import check_energy
from streamkpca.errors import SparsityError, SparsityWarning
from streamkpca.factor import squared_norms
from streamkpca.kernels import Kernel
from streamkpca.moments import Moments
from streamkpca.refit import refit
from streamkpca.snapshot import Snapshot
from streamkpca.summary import Summary
from streamkpca.validation import Names
from streamkpca.weighting import Candidates, RefitSettings

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class StreamSettings:
    """Checked parameters."""

    kernel: Kernel
    max_atoms: int | None
    tolerance: float
    block_size: int
    refit_every: int
    refit: RefitSettings


class Stream:
    """All that a stream has taught.

    A call works on a shallow copy and the model takes the copy over when nothing failed, so a refused or broken call
    changes nothing. Parts are replaced, never written to, with one exception: rows are appended to the buffer behind
    the first `n_pending`, where no older copy looks.
    """

    def __init__(self, settings: StreamSettings, n_features: int, names: Names | None) -> None:
        self.kernel = settings.kernel
        self.block_size = settings.block_size
        self.n_features = n_features
        self.names = names
        self.summary: Summary | None = None
        self.scheduled: Snapshot | None = None
        self.published: Snapshot | None = None
        self.provisional: tuple[StreamSettings, Snapshot] | None = None
        self.n_pending = 0
        self.n_rows_at_refit = 0
        self._new_buffer()

    @property
    def n_rows(self) -> int:
        """Rows given, pending ones included."""
        return self.n_pending + (self.summary.n_rows if self.summary else 0)

    def take(self, rows: Array, weights: Array, settings: StreamSettings, *, publish: bool) -> None:
        """Append rows; every block that fills advances the summary, and refits it when that is due."""
        self._check_range(rows)
        self.provisional = None
        taken = 0
        while taken < len(rows):
            count = min(self.block_size - self.n_pending, len(rows) - taken)
            place = slice(self.n_pending, self.n_pending + count)
            self._buffer[place] = rows[taken : taken + count]
            self._buffer_weights[place] = weights[taken : taken + count]
            self.n_pending += count
            taken += count
            if self.n_pending == self.block_size:
                self.flush(settings)
                if publish and self._refit_is_due(settings):
                    self.scheduled = self.published = self.publish(settings)
                    self.n_rows_at_refit = self.n_rows

    def flush(self, settings: StreamSettings) -> None:
        """Advance the summary by the pending rows."""
        if self.n_pending:
            self.summary = self._advanced(settings)
            self.n_pending = 0
            self._new_buffer()

    def publish(self, settings: StreamSettings) -> Snapshot:
        """Make a snapshot of all rows, pending ones included, and leave the stream where it is.

        It starts from the last scheduled one: what is published in between on demand leaves no trace.
        """
        kernel, atoms, moments = self.state(settings)
        try:
            return refit(kernel, atoms, moments, settings.refit, self.scheduled)
        except SparsityError as error:
            # A stream must go on: the last axes stay, and before there are any, all atoms make them.
            kept = "all atoms are used" if self.scheduled is None else "the last axes stay"
            warnings.warn(f"{error}; until then {kept}", SparsityWarning, stacklevel=2)
            if self.scheduled is not None:
                return self.scheduled
            every_atom = replace(settings.refit, noise_variance=None, n_active=None, axes="ritz")
            return refit(kernel, atoms, moments, every_atom)

    def state(self, settings: StreamSettings) -> tuple[Kernel, Candidates, Moments]:
        """Return what a refit sees, pending rows included."""
        summary = self._advanced(settings)
        basis = summary.basis
        atoms = Candidates(basis.atoms, summary.atom_rows, basis.factor, are_atoms=True)
        return basis.kernel, atoms, summary.moments

    def read_provisional(self, settings: StreamSettings) -> Snapshot:
        """Answer readers before the first scheduled refit, from the rows so far; kept until rows come."""
        if self.provisional is None or self.provisional[0] != settings:
            self.provisional = settings, self.publish(settings)
        return self.provisional[1]

    def _check_range(self, rows: Array) -> None:
        """Refuse rows that the kernel could not take, while the call can still be refused.

        Among the pending rows they would stop every later call.
        """
        kernel = self.kernel if self.summary is None else self.summary.basis.kernel
        if not kernel.is_settled:
            with np.errstate(over="ignore"):
                check_energy(squared_norms(rows))
        elif not kernel.is_stationary:
            check_energy(kernel.program.diagonal(rows))

    def _advanced(self, settings: StreamSettings) -> Summary:
        rows, weights = self._buffer[: self.n_pending], self._buffer_weights[: self.n_pending]
        if self.summary is None:
            summary = Summary(self.kernel.settled(rows), self.n_features)
        else:
            summary = self.summary.copy()
        if settings.max_atoms is not None:
            summary.shrink(settings.max_atoms)
        if self.n_pending:
            summary.advance(rows, weights, max_atoms=settings.max_atoms, tolerance=settings.tolerance)
        return summary

    def _refit_is_due(self, settings: StreamSettings) -> bool:
        # While the stream is young a growth by a quarter comes first.
        interval = min(settings.refit_every, self.n_rows_at_refit / 4)
        return self.n_rows - self.n_rows_at_refit >= interval

    def _new_buffer(self) -> None:
        self._buffer = np.empty((self.block_size, self.n_features))
        self._buffer_weights = np.empty(self.block_size)
