"""The immutable state of a stream, and the functions that query it."""

import secrets
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np

from streamkpca._core.arrays import Array, Names
from streamkpca._core.concurrency import replace_fields
from streamkpca._core.linalg import one_blas_thread, squared_norms
from streamkpca._core.parameters import check_integer
from streamkpca._core.reservoir import Reservoir
from streamkpca.components.refit import Candidates, RefitSettings, refit
from streamkpca.components.snapshot import Snapshot
from streamkpca.dictionary.basis import AtomStats, Basis, check_energy, check_squared_lengths
from streamkpca.dictionary.moments import RecordedMoments, RowSums
from streamkpca.dictionary.selection import selection_sample_size
from streamkpca.errors import RowError, SparsityError, SparsityWarning, name_errors, warn
from streamkpca.kernels import Kernel
from streamkpca.rows.bad_rows import check_finite
from streamkpca.rows.gaps import ColumnSums, gaps_in
from streamkpca.rows.parts import RowParts, Rows, parts_of
from streamkpca.rows.validation import LARGEST_WEIGHT
from streamkpca.stream.parameters import Settings
from streamkpca.stream.step import advance_block, shrink, totals_after
from streamkpca.stream.summary import Summary

# Pieces of a buffer, beyond which they are united: each call that adds a row copies the list of them.
_MOST_PIECES = 256


class RowBuffer(NamedTuple):
    """Rows and weights in the pieces, (k, d) and (k,), that they came in; the first piece may be empty. A value."""

    n_rows: int
    row_pieces: tuple[Array, ...]
    weight_pieces: tuple[Array, ...]

    @classmethod
    def empty(cls, n_features: int) -> Self:
        """Return a buffer without rows."""
        return cls.of(np.empty((0, n_features)), np.empty(0))

    @classmethod
    def of(cls, rows: Array, weights: Array) -> Self:
        """Return a buffer of these rows (n, d) and weights (n,), which are not copied."""
        return cls(len(rows), (rows,), (weights,))

    @property
    def rows(self) -> Array:
        """The rows, (n_rows, d)."""
        return np.concatenate(self.row_pieces)

    @property
    def weights(self) -> Array:
        """The weights of the rows, (n_rows,)."""
        return np.concatenate(self.weight_pieces)

    def join(self, rows: Array, weights: Array | float) -> Self:
        """Append copies of rows (n, d) and of their weights (n,), or one weight for all."""
        if not len(rows):
            return self
        begun = self if len(self.row_pieces) < _MOST_PIECES else self.of(self.rows, self.weights)
        counts = np.empty(len(rows))
        counts[:] = weights
        return type(self)(
            self.n_rows + len(rows), (*begun.row_pieces, rows.copy(order="C")), (*begun.weight_pieces, counts)
        )

    def decay(self, factor: float, *, least: float = 0.0) -> Self:
        """Multiply all weights by `factor`; those above 0 stay at least `least`."""
        weights = self.weights
        return self.of(self.rows, np.where(weights > 0.0, np.maximum(factor * weights, least), 0.0))

    def __reduce__(self) -> tuple[Any, ...]:
        # Equal models have equal pickles, however their rows were cut.
        return type(self).of, (self.rows, self.weights)


class Provisional(NamedTuple):
    """Axes made for readers before the first refit, and what they were made from."""

    settings: Settings
    pending: RowBuffer
    snapshot: Snapshot


class Settled(NamedTuple):
    """A kernel whose scale was settled on pending rows, and what it was before."""

    pending: RowBuffer
    kernel: Kernel
    settled_kernel: Kernel


@dataclass(frozen=True, eq=False, repr=False)
class State:
    """Everything that a model has learned from a stream: arrays and scalars that never change.

    `advance`, `forget`, `merge` and `fit` make the next state. States share arrays with each other and with models, so
    copy an array before you write to it. Rows of weight zero, also rejected ones, keep their positions in the stream.

    Parameters
    ----------
    kernel : Kernel
        The kernel as the model was given it; that of `summary` has its scale settled.
    n_features : int
        Width d of the rows.
    names : ndarray of shape (d,) of str, or None
    block_size, reservoir_size, has_gaps, seed
        As `Settings` has them.
    pending : RowBuffer
        Rows and weights that do not fill a block yet.
    settling : RowBuffer or None
        All rows of full blocks, until the scale of the kernel is final.
    summary : Summary or None
        Atoms, factor, moments, samples and schedule; None before the first full block of positive weight.
    n_rows_before, n_rejected, n_rows_at_refit : int
        Rows, in whole blocks, before the first of positive weight; rows left out because of NaN or infinity; rows at
        the last scheduled refit.
    scheduled, published : Snapshot or None
        Axes of the last scheduled refit, and those that answer: the same, or of a later refit on demand.

    Examples
    --------
    >>> from streamkpca.stream import Settings, State, advance
    >>> settings = Settings.make(n_components=1, kernel="linear")
    >>> state = State.begin(settings, n_features=2)
    >>> later = advance(state, np.array([[1.0, 2.0]]), 1.0, settings)
    >>> state.n_rows, later.n_rows, later.settled_kernel
    (0, 1, Linear())
    """

    kernel: Kernel
    n_features: int
    names: Names | None
    block_size: int
    reservoir_size: int
    has_gaps: bool
    seed: int
    pending: RowBuffer
    settling: RowBuffer | None
    summary: Summary | None = None
    n_rows_before: int = 0
    n_rejected: int = 0
    n_rows_at_refit: int = 0
    scheduled: Snapshot | None = None
    published: Snapshot | None = None
    # Cache of `latest_axes`, since axes take O(m^3); true as long as `pending` is the same object.
    provisional: Provisional | None = field(default=None, init=False, repr=False)
    # Cache of `settled_kernel`, which a young template is asked for each new key of a bank: 10 ms each time.
    settled: Settled | None = field(default=None, init=False, repr=False)

    @classmethod
    @name_errors
    def begin(cls, settings: Settings, n_features: int, names: Names | None = None) -> Self:
        """Return the state before the first row.

        Parameters
        ----------
        settings : Settings
        n_features : int
            At least 1; anything else is refused by TypeError or ValueError.
        names : ndarray of shape (d,) of str, optional
        """
        n_features = check_integer("n_features", n_features, least=1)
        # Without a random_state the seed is drawn once, and then belongs to the stream.
        seed = secrets.randbits(63) if settings.random_state is None else settings.random_state
        nothing = RowBuffer.empty(n_features)
        return cls(
            kernel=settings.kernel,
            n_features=n_features,
            names=names,
            block_size=settings.block_size,
            reservoir_size=settings.reservoir_size,
            has_gaps=settings.has_gaps,
            seed=seed,
            pending=nothing,
            settling=None if settings.kernel.is_settled else nothing,
        )

    @property
    def n_rows(self) -> int:
        """Number of rows given, including pending ones."""
        return self.pending.n_rows + (self.summary.n_rows if self.summary else self.n_rows_before)

    @property
    def settled_kernel(self) -> Kernel:
        """The kernel with its present scale; before the first full block, settled on the pending rows."""
        if self.summary:
            return self.summary.basis.kernel
        made = self.settled
        if made is None or made.pending is not self.pending or made.kernel is not self.kernel:
            made = Settled(self.pending, self.kernel, settle_kernel(self, self.pending.rows, self.pending.weights))
            object.__setattr__(self, "settled", made)
        return made.settled_kernel


# The kernel's scale


def settle_kernel(state: State, rows: Array, weights: Array) -> Kernel:
    """Return the kernel with its scale settled on rows of positive weight."""
    if state.kernel.is_settled:
        return state.kernel
    if not weights.any():
        # A query may come before any row of positive weight; then any scale will do, and is not kept.
        return state.kernel.settled(np.zeros((1, rows.shape[1])))
    return state.kernel.settled(_complete_gaps(state, rows, weights), _within_range(weights))


def _complete_gaps(state: State, rows: Array, weights: Array) -> Array:
    """Complete rows (n, d) by the expected numbers, for the choice of a scale."""
    if not state.has_gaps or gaps_in(rows) is None:
        return rows
    return ColumnSums.of(rows, weights).distribution().complete(rows)


def _within_range(weights: Array) -> Array:
    """Return weights (n,), or multiples of them where `forget` has reduced some below the smallest that is allowed."""
    if weights.min(where=weights > 0.0, initial=1.0) >= 1.0 / LARGEST_WEIGHT and weights.max() <= LARGEST_WEIGHT:
        return weights
    weights = weights / weights.max()
    return np.where(weights < 1.0 / LARGEST_WEIGHT, 0.0, weights)


# All rows, pending ones included


def begin_summary(state: State, settings: Settings, kernel: Kernel | None = None) -> Summary:
    """Return the summary, or an empty one with a kernel given or settled on the pending rows."""
    if state.summary is not None:
        return state.summary
    d = state.n_features
    return Summary(
        seed=state.seed,
        basis=Basis.empty(kernel or state.settled_kernel, d),
        record=RecordedMoments.zero(),
        atom_stats=AtomStats.none(),
        selection_sample=Reservoir.empty(selection_sample_size(settings.max_atoms), d),
        reservoir=Reservoir.empty(state.reservoir_size, d),
        n_rows=state.n_rows_before,
        column_sums=ColumnSums.none(d) if state.has_gaps else None,
    )


def record_pending(state: State, settings: Settings, kernel: Kernel | None = None) -> Summary:
    """Return a summary of all rows, including pending ones."""
    summary, pending = begin_summary(state, settings, kernel), state.pending
    if not pending.n_rows:
        return shrink(summary, settings.max_atoms)
    return advance_block(summary, pending.rows, pending.weights, settings)


def totals_and_sample(state: State, settings: Settings, kernel: Kernel | None = None) -> tuple[RowSums, Reservoir]:
    """Return the stream's totals and the sample for certificates, without searching for atoms.

    A kernel that is known to be settled saves the time to settle it on pending rows; the sample does not depend on it.
    """
    pending = state.pending
    return totals_after(begin_summary(state, settings, kernel), pending.rows, pending.weights, settings.half_life)


# Axes


def latest_axes(state: State, settings: Settings) -> Snapshot:
    """Return the published axes, or before the first refit those of all rows so far, which the state keeps.

    Parameters
    ----------
    state : State
    settings : Settings

    Examples
    --------
    >>> from streamkpca.stream import Settings, State, advance, latest_axes
    >>> settings = Settings.make(n_components=1, kernel="linear")
    >>> state = advance(State.begin(settings, 2), np.array([[4.0, 0.0], [-2.0, 1.0], [-2.0, -1.0]]), 1.0, settings)
    >>> latest_axes(state, settings) is latest_axes(state, settings)
    True
    """
    if state.published is not None:
        return state.published
    made = state.provisional
    if made is None or made.settings != settings or made.pending is not state.pending:
        made = Provisional(settings, state.pending, axes(state, settings))
        object.__setattr__(state, "provisional", made)
    return made.snapshot


def publish_axes(state: State, settings: Settings) -> State:
    """Return the state with axes of all rows published; the next scheduled refit counts from here."""
    snapshot = axes(state, settings)
    return replace_fields(state, scheduled=snapshot, published=snapshot, n_rows_at_refit=state.n_rows)


def axes(state: State, settings: Settings) -> Snapshot:
    """Return weights and axes of all rows of a state, including pending ones; O(m^3).

    The fit starts from the last scheduled snapshot, so a refit on demand does not affect later ones.

    Parameters
    ----------
    state : State
    settings : Settings

    Examples
    --------
    >>> from streamkpca.stream import Settings, State, advance, axes
    >>> settings = Settings.make(n_components=1, kernel="linear")
    >>> state = advance(State.begin(settings, 2), np.array([[4.0, 0.0], [-2.0, 1.0], [-2.0, -1.0]]), 1.0, settings)
    >>> axes(state, settings).eigenvalues
    array([12.])
    """
    with one_blas_thread():
        summary = record_pending(state, settings)
        basis = summary.basis
        atoms = Candidates(basis.atoms, summary.atom_stats.positions, basis.factor, are_atoms=True)
        known = basis.kernel, atoms, summary.moments
        sample = summary.reservoir.map(basis.complete).rows

        def fit_axes(chosen: RefitSettings) -> Snapshot:
            snapshot = refit(*known, chosen, sample, state.scheduled)
            return replace(snapshot, distribution=basis.distribution).ready()

        try:
            return fit_axes(settings.refit)
        except SparsityError as error:
            # A stream must not stop here, and the last axes may be those of a much older stream.
            warn(f"{error}; until then all atoms are active", SparsityWarning)
            everything = replace(settings.refit, noise_variance=None, n_active=None, axes="ritz")
            return fit_axes(everything)


def check_continued(state: State, settings: Settings) -> None:
    """Refuse parameters that cannot change within a stream."""
    began = (state.kernel, state.block_size, state.reservoir_size)
    if (settings.kernel, settings.block_size, settings.reservoir_size) != began:
        raise ValueError(
            "kernel, block_size and reservoir_size cannot change within a stream; it began with "
            f"kernel={state.kernel!r}, block_size={state.block_size}, reservoir_size={state.reservoir_size}; "
            "set them back or start anew with fit"
        )
    if state.has_gaps != settings.has_gaps:
        raise ValueError(
            f"missing={settings.missing!r} is not how this stream began: it cannot change to or from "
            "'marginal' within a stream; set it back or start anew with fit"
        )


def check_mergeable(own: State, other: State, settings: Settings, other_settings: Settings) -> None:
    """Refuse a stream of other features, another half-life or kernel."""

    def refuse(expected: str, got: str, remedy: str) -> NoReturn:
        raise ValueError(f"expected a model {expected} but got {got}; {remedy}")

    if own.n_features != other.n_features:
        refuse(f"of {own.n_features} features", f"one of {other.n_features}", "merge models of the same columns")
    if own.names is not None and other.names is not None and own.names.tolist() != other.names.tolist():
        remedy = "merge models of the same columns in the same order"
        refuse(f"of the features {own.names.tolist()}", f"{other.names.tolist()}", remedy)
    if other.has_gaps and not own.has_gaps:
        refuse("of rows without gaps", "one with missing='marginal'", "merge this one into that one")
    if settings.half_life != other_settings.half_life:
        remedy = "set the same half_life, as weights that decay at different rates cannot be added"
        refuse(f"with half_life={settings.half_life}", f"half_life={other_settings.half_life}", remedy)
    kernels = [state.summary.basis.kernel if state.summary else state.kernel for state in (own, other)]
    settled = all(kernel.is_settled for kernel in kernels)
    same = kernels[0] == kernels[1] if settled else own.kernel == other.kernel
    # A device or a split begins with the scale that few rows give, and its model may not have settled it.
    if not same and (settled or own.settled_kernel != other.settled_kernel):
        remedy = "settle the scale on some rows once and pass kernel=first.kernel_ to all models"
        refuse(f"with the kernel {kernels[0]!r}", f"{kernels[1]!r}", remedy)


def check_rows(state: State, rows: Rows) -> None:
    """Refuse anything but an array of finite rows (n, d); NaN is a gap where the state has them."""
    is_block = isinstance(rows, RowParts) or (type(rows) is np.ndarray and rows.dtype == np.float64)
    if not is_block or rows.shape[1:] != (state.n_features,):
        given = f"shape {rows.shape}" if is_block else type(rows).__name__
        raise ValueError(
            f"expected rows as a float64 array of shape (n, {state.n_features}) but got {given}; "
            "the estimators take rows of other types"
        )
    # Parts are checked where they are made.
    if isinstance(rows, np.ndarray):
        check_finite(rows, gaps=state.has_gaps, names=state.names)


def check_range(state: State, rows: Rows, weights: Array | float) -> None:
    """Refuse rows outside the kernel's range; among the pending rows, they would make every later call fail.

    Parameters
    ----------
    state : State
    rows : ndarray of shape (n, d) of float64
    weights : ndarray of shape (n,), or float
        Rows of weight 0 are not looked at.

    Raises
    ------
    ValueError
        k(x, x) overflows, or the kernel is not defined there. The error names the row.

    Examples
    --------
    >>> from streamkpca.stream import Settings, State, check_range
    >>> settings = Settings.make(kernel="linear")
    >>> check_range(State.begin(settings, 1), np.array([[1e200]]), 1.0)
    Traceback (most recent call last):
        ...
    streamkpca.errors.RowError: kernel: k(x, x) is inf for row 0 of these, but the limit is 1e+139; scale the features
    down, or choose a bounded kernel such as RBF
    """
    kernel = state.kernel if state.summary is None else state.summary.basis.kernel
    is_first = state.summary is None and not state.n_rows
    if is_first and kernel.is_stationary and (kernel.is_settled or not kernel.has_units):
        # k(x, x) is the same for all rows and widths, so one row is checked: nested exponentials may be too large.
        origin = np.zeros((1, state.n_features))
        check_energy(kernel.settled(origin).program.diagonal(origin))
    check_kernel_range(kernel, rows, weights, gaps=state.has_gaps)


def check_kernel_range(kernel: Kernel, rows: Rows, weights: Array | float, *, gaps: bool = False) -> None:
    """Refuse rows of positive weight outside the range of a kernel."""
    is_bounded = kernel.is_settled and kernel.is_stationary
    if is_bounded and not kernel.has_units:
        return
    for place, part in parts_of(rows):
        counts = weights[place] > 0.0 if isinstance(weights, np.ndarray) else slice(None)
        counting = part[counts]
        if gaps and (missing := gaps_in(counting)) is not None:
            # Their completions are among other rows.
            counting = np.where(missing, 0.0, counting)
        kernel.check_range(counting)
        if is_bounded:
            continue
        try:
            with one_blas_thread(), np.errstate(over="ignore"):
                if kernel.is_settled:
                    check_energy(kernel.program.diagonal(counting))
                else:
                    check_squared_lengths(squared_norms(counting))
        except RowError as error:
            raise error.at(int(np.arange(place.start, place.stop)[counts][error.row])) from None
