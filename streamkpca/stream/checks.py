"""Refusals: parameters that cannot change, streams that cannot be merged, rows outside the range of a kernel."""

import numpy as np
import numpy.typing as npt

from streamkpca._core.linalg import one_blas_thread, squared_norms
from streamkpca.dictionary.basis import check_energy, check_squared_lengths
from streamkpca.kernels import Kernel
from streamkpca.rows.gaps import gaps_in
from streamkpca.rows.parts import RowParts, Rows, parts_of
from streamkpca.stream.settings import StreamSettings
from streamkpca.stream.state import State

Array = npt.NDArray[np.float64]


def check_continued(state: State, settings: StreamSettings, where: str) -> None:
    """Refuse parameters that cannot change within a stream."""
    began = (state.kernel, state.block_size, state.reservoir_size, state.dtype)
    if (settings.kernel, settings.block_size, settings.reservoir_size, settings.dtype) != began:
        raise ValueError(
            f"{where}: kernel, block_size, reservoir_size and dtype cannot change within a stream; it began with "
            f"kernel={state.kernel!r}, block_size={state.block_size}, reservoir_size={state.reservoir_size}, "
            f"dtype={state.dtype!r}; set them back or start anew with fit"
        )
    if state.has_gaps != settings.has_gaps:
        raise ValueError(
            f"{where}: on_missing={settings.on_missing!r} is not how this stream began: it cannot change to or from "
            "'marginal' within a stream; set it back or start anew with fit"
        )


def check_mergeable(
    own: State, other: State, settings: StreamSettings, other_settings: StreamSettings, where: str
) -> None:
    """Refuse a stream of other features, another precision, half-life or kernel."""
    if own.n_features != other.n_features:
        raise ValueError(
            f"{where} expected a model of {own.n_features} features but got one of {other.n_features}; "
            "merge models of the same columns"
        )
    if own.names is not None and other.names is not None and own.names.tolist() != other.names.tolist():
        raise ValueError(
            f"{where} expected a model of the features {own.names.tolist()} but got {other.names.tolist()}; "
            "merge models of the same columns in the same order"
        )
    if own.dtype != other.dtype:
        raise ValueError(
            f"{where} expected a model with dtype={own.dtype!r} but got dtype={other.dtype!r}; "
            "merge models that keep rows in the same precision"
        )
    if other.has_gaps and not own.has_gaps:
        raise ValueError(
            f"{where} expected a model of rows without gaps but got one with on_missing='marginal'; merge this one "
            "into that one"
        )
    if settings.half_life != other_settings.half_life:
        raise ValueError(
            f"{where} expected a model with half_life={settings.half_life} but got "
            f"half_life={other_settings.half_life}; set the same half_life, as weights that decay at different "
            "rates cannot be added"
        )
    kernels = [state.summary.basis.kernel if state.summary else state.kernel for state in (own, other)]
    settled = all(kernel.is_settled for kernel in kernels)
    if kernels[0] != kernels[1] if settled else own.kernel != other.kernel:
        raise ValueError(
            f"{where} expected a model with the kernel {kernels[0]!r} but got {kernels[1]!r}; give all models the "
            "same, scale included: settle it on some rows once and pass kernel=first.kernel_ to the others"
        )


def check_shape(state: State, rows: Rows, where: str) -> None:
    """Refuse anything but an array of rows (n, d)."""
    is_block = isinstance(rows, RowParts) or (isinstance(rows, np.ndarray) and rows.dtype == np.float64)
    if not is_block or rows.shape[1:] != (state.n_features,):
        given = f"shape {rows.shape}" if is_block else type(rows).__name__
        raise ValueError(
            f"{where} expected rows as a float64 array of shape (n, {state.n_features}) but got {given}; "
            "the estimators take rows of other types"
        )


def check_range(state: State, rows: Rows, weights: Array | float) -> None:
    """Refuse rows outside the kernel's range; among the pending rows, they would make every later call fail."""
    kernel = state.kernel if state.summary is None else state.summary.basis.kernel
    if kernel.is_stationary and not state.n_rows and (kernel.is_settled or not kernel.has_units):
        # The same for all rows, whatever the width, but exp(exp(...)) of 1 can be too large.
        origin = np.zeros((1, state.n_features))
        check_energy(kernel.settled(origin).program.diagonal(origin))
    check_kernel_range(kernel, rows, weights, gaps=state.has_gaps)


def check_kernel_range(kernel: Kernel, rows: Rows, weights: Array | float, *, gaps: bool = False) -> None:
    """Refuse rows of positive weight outside the range of a kernel."""
    is_bounded = kernel.is_settled and kernel.is_stationary
    if is_bounded and not kernel.has_units:
        return
    for place, part in parts_of(rows):
        counting = part[weights[place] > 0.0] if isinstance(weights, np.ndarray) else part
        if gaps and (missing := gaps_in(counting)) is not None:
            # Their completions are among other rows.
            counting = np.where(missing, 0.0, counting)
        kernel.check_range(counting, "kernel")
        if not is_bounded:
            with one_blas_thread(), np.errstate(over="ignore"):
                if kernel.is_settled:
                    check_energy(kernel.program.diagonal(counting))
                else:
                    check_squared_lengths(squared_norms(counting))
