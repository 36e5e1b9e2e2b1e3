"""From rows of any kind to the next state, the cell that holds it, and the arguments of a batch."""

from typing import Any

from streamkpca._core.arrays import Array
from streamkpca._core.concurrency import WriteLock
from streamkpca.kernels import Kernel, kernel_from
from streamkpca.rows import validation
from streamkpca.stream.parameters import Settings
from streamkpca.stream.state import State, check_continued
from streamkpca.stream.transitions import with_rows


class StateCell:
    """The current state of a model (None before the first row), and the lock that its writers hold.

    A writer holds the lock, makes the next state, and replaces the current one by one assignment: readers see one of
    the two, and a call that fails changes nothing. A reader must read `state` only once per query.
    """

    def __init__(self, state: State | None = None) -> None:
        self.state = state
        self.write_lock = WriteLock()


def learn_rows(state: State | None, X: Any, sample_weight: Any, settings: Settings) -> State:
    """Return the state (None before the first row) after rows of any kind, which are checked first."""
    if state is not None:
        check_continued(state, settings)
    state, rows, weights, n_rejected = prepare_rows(state, X, sample_weight, settings)
    return with_rows(state, rows, weights, settings, n_rejected)


def prepare_rows(
    state: State | None, X: Any, sample_weight: Any, settings: Settings
) -> tuple[State, validation.Rows, Array | float, int]:
    """Check rows; return the state that they continue or begin, rows, their weights, and how many were rejected."""
    skips_bad, admits_nan = settings.on_bad_rows == "skip", settings.on_missing != "raise"
    if state is not None and validation.is_plain(X, state.n_features):
        # Single rows have no time for more.
        rows: validation.Rows = X
    else:
        width, names = (None, None) if state is None else (state.n_features, state.names)
        rows = validation.check_parts(X, width, names, finite=not skips_bad, gaps=admits_nan, learns=True)
        if state is None:
            settings.kernel.check_width(rows.shape[1])
            state = State.begin(settings, rows.shape[1], validation.feature_names(X))
    if settings.dtype != "float64":
        rows = validation.round_to_single(rows, finite=not skips_bad)
    n_rejected = 0
    # All weights may be zero here: the same rows could have come in one call with others. A default weight stays a
    # number, as making an array of it took a fifth of the time of a single row.
    weights = 1.0 if sample_weight is None else validation.as_sample_weight(sample_weight, len(rows), all_zero=True)
    if skips_bad or admits_nan:
        rows, weights, n_rejected = validation.without_bad_rows(rows, weights, gaps=settings.has_gaps)
    return state, rows, weights, n_rejected


def learn_batches(state: State | None, X: Any, sample_weight: Any, settings: Settings) -> State | None:
    """Return the state after all batches of an Arrow stream; `sample_weight` is None or one weight for all rows."""
    n_rows = 0
    for batch in validation.arrow_batches(X):
        try:
            state = learn_rows(state, batch, sample_weight, settings)
        except (TypeError, ValueError) as error:
            if n_rows:
                error.add_note(f"Rows are counted from row {n_rows} of the Arrow stream, where a batch begins.")
            raise
        n_rows += batch.num_rows
    return state


def batch_of(kernel: Any, X: Any, sample_weight: Any) -> tuple[Kernel, Array, Array, validation.Names | None]:
    """Check the arguments of a batch fit; return the settled kernel, the rows, their weights and the columns' names."""
    X, kernel = validation.arrow_table(X), kernel_from(kernel)
    rows = validation.check_parts(X, learns=True)[:]
    weights = validation.as_sample_weight(sample_weight, len(rows))
    return kernel.settled(rows, weights), rows, weights, validation.feature_names(X)
