"""From rows of any kind to the next stream: arrays, tables, Arrow streams, sparse rows."""

from dataclasses import replace
from typing import Any

from streamkpca.rows.categories import CategoryReader
from streamkpca.rows.packed import MOST_DENSE, is_sparse
from streamkpca.rows.parts import Rows
from streamkpca.rows.validation import (
    as_sample_weight,
    checked_packed,
    checked_parts,
    feature_names,
    is_plain,
    weighted_batches,
    without_bad_rows,
)
from streamkpca.kernels import Kernel
from streamkpca.kernels.equality import category_reader
from streamkpca.kernels.sparse import OfSparse
from streamkpca.stream.settings import StreamSettings
from streamkpca.stream.state import Stream


def learned(stream: Stream | None, X: Any, sample_weight: Any, settings: StreamSettings, where: str) -> Stream:
    """Return the stream (None before the first row) after rows of any kind, which are checked first."""
    categories, finite = None, not settings.skips_bad_rows
    if stream is not None:
        stream.check_continued(settings, where)
    if stream is not None and is_plain(X, stream.n_features) and type(stream.kernel) is not OfSparse:
        # Single rows have no time for more.
        rows: Rows = X
    else:
        categories = category_reader(settings.kernel)
        settings, rows = rows_for(stream, settings, X, where, categories)
        if stream is None:
            stream = Stream(settings, rows.shape[1], feature_names(X))
        elif rows.shape[1] > stream.n_features:
            stream = stream.with_room(rows.shape[1] // 2)
    has_text = categories is not None and categories.has_seen_text
    rows, n_rejected = stream.rounded(rows, where, finite=finite, has_text=has_text), 0
    # All weights may be zero here: the same rows could have come in one call with others. A default weight stays a
    # number, as making an array of it took a fifth of the time of a single row.
    weights = 1.0 if sample_weight is None else as_sample_weight(sample_weight, len(rows), where=where, all_zero=True)
    if settings.skips_bad_rows or settings.admits_nan:
        rows, weights, n_rejected = without_bad_rows(rows, weights, gaps=settings.has_gaps)
    later = stream.learned(rows, weights, settings, n_rejected=n_rejected)
    if categories is not None and has_text:
        later.categories = categories.names_with(later.categories)
    return later


def learned_in_batches(
    stream: Stream | None, X: Any, sample_weight: Any, settings: StreamSettings, where: str
) -> Stream | None:
    """Return the stream after all batches of an Arrow stream; one that is refused leaves everything as it was."""
    n_rows = 0
    for batch, weights in weighted_batches(X, sample_weight, where):
        try:
            stream = learned(stream, batch, weights, settings, where)
        except (TypeError, ValueError) as error:
            if n_rows:
                error.add_note(f"Rows are counted from row {n_rows} of the Arrow stream, where a batch begins.")
            raise
        n_rows += batch.num_rows
    return stream


def rows_for(
    stream: Stream | None, settings: StreamSettings, X: Any, where: str, categories: CategoryReader
) -> tuple[StreamSettings, Rows]:
    """Check rows as a stream takes them, packed if its first rows are sparse and wide; return its settings too."""
    finite, kernel = not settings.skips_bad_rows, settings.kernel
    if stream is None and is_sparse(X) and X.shape[-1] > MOST_DENSE:
        kernel = _packing(kernel, X.shape[-1], where)
    elif stream is not None and isinstance(stream.kernel, OfSparse):
        kernel = _packing(kernel, stream.n_columns, where)
    if isinstance(kernel, OfSparse):
        if settings.dtype != "float64" and kernel.n_columns > 2**24:
            raise ValueError(
                f"{where}: dtype={settings.dtype!r} cannot tell {kernel.n_columns} columns apart; use dtype='float64'"
            )
        room = 0 if stream is None else stream.n_features // 2
        rows: Rows = checked_packed(X, where, kernel.n_columns, finite=finite, room=room)
        # Nothing is missing in sparse rows: what they do not hold is 0.
        return replace(settings, kernel=kernel, on_missing="raise"), rows
    width, names = (None, None) if stream is None else (stream.n_features, stream.names)
    gaps = settings.admits_nan
    rows = checked_parts(X, where, width, names, finite=finite, gaps=gaps, categories=categories)
    if stream is None:
        kernel.check_width(rows.shape[1], where)
    return settings, rows


def _packing(kernel: Kernel, n_columns: int, where: str) -> OfSparse:
    try:
        return OfSparse(kernel, n_columns)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
