"""Rows in Arrow's memory: tables, batches, and streams of them, by the names of their columns."""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def is_arrow(X: Any) -> bool:
    """Tell whether X offers a stream of Arrow's batches and is no DataFrame, which can be read without Arrow."""
    # To miss an attribute takes time that a single row does not have.
    return type(X) is not np.ndarray and hasattr(X, "__arrow_c_stream__") and not hasattr(X, "to_numpy")


def is_arrow_table(X: Any) -> bool:
    """Tell whether X is a table or a batch of pyarrow, whose rows can be read again and again."""
    pyarrow = sys.modules.get("pyarrow")
    return pyarrow is not None and isinstance(X, pyarrow.Table | pyarrow.RecordBatch)


def arrow_batches(X: Any, where: str) -> Iterator[Any]:
    """Yield the batches of a stream that have rows; all of it, without one, if it has no rows.

    Raises
    ------
    ImportError
        pyarrow is not installed.
    TypeError
        X is a stream of something else than rows.
    """
    reader = _reader(X, where)
    empty = True
    for batch in reader:
        if batch.num_rows:
            empty = False
            yield batch
    if empty:
        yield reader.schema.empty_table()


def arrow_table(X: Any, where: str) -> Any:
    """Return a table of pyarrow with the rows of a stream, which is read to its end; X itself if it is anything else.

    Arrow's own tables and batches are not copied. Others are held whole, in the types that they come in.
    """
    return _reader(X, where).read_all() if is_arrow(X) and not is_arrow_table(X) else X


def _reader(X: Any, where: str) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise ImportError(
            f"{where}: X is an Arrow stream ({type(X).__name__}), which pyarrow reads; "
            "pip install 'streamkpca[arrow]', or pass a DataFrame of pandas or polars"
        ) from None
    try:
        return pyarrow.RecordBatchReader.from_stream(X)
    except pyarrow.ArrowInvalid as error:
        raise TypeError(
            f"{where}: expected an Arrow stream of rows but got {type(X).__name__} ({str(error).splitlines()[0]}); "
            "pass a table, with a column for each feature"
        ) from None


def in_order(table: Any, names: npt.NDArray[np.object_] | None) -> Any:
    """Return a table of pyarrow with its columns in the order of names, if these are its names."""
    own = table.schema.names
    wanted = None if names is None else list(names)
    if wanted is None or own == wanted or sorted(own) != sorted(wanted) or len(set(own)) < len(own):
        return table
    return table.select(wanted)


def arrow_rows(table: Any, where: str) -> Array:
    """Turn a table of pyarrow into rows (n, d); missing cells become NaN.

    Raises
    ------
    TypeError
        A column holds anything else than numbers.
    """
    names, n = table.schema.names, table.num_rows
    rows = np.empty((n, len(names)))
    for j, column in enumerate(table.columns):
        kind = column.type
        if _is_dictionary(kind):
            column, kind = _decoded(column), kind.value_type
        if _holds_numbers(kind):
            rows[:, j] = column.to_numpy(zero_copy_only=False) if hasattr(column, "buffers") else column.to_numpy()
        else:
            raise TypeError(
                f"{where}: column {names[j]!r} of X holds {kind} but numbers are required; leave it out, convert it, "
                "or number its categories"
            )
    return rows


def _decoded(column: Any) -> Any:
    return column.dictionary_decode() if hasattr(column, "dictionary_decode") else column.cast(column.type.value_type)


def _is_dictionary(kind: Any) -> bool:
    return bool(sys.modules["pyarrow"].types.is_dictionary(kind))


def _holds_numbers(kind: Any) -> bool:
    types = sys.modules["pyarrow"].types
    checks = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(check(kind) for check in checks)
