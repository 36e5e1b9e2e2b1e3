"""Rows of any kind, made into dense float64 rows, or refused with an error.

Arrays, lists, tables of pandas, polars and Arrow, streams of Arrow and sparse matrices of scipy.
"""

import re
import sys
from collections.abc import Iterator
from datetime import date, timedelta
from numbers import Real
from os import PathLike
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from streamkpca._core._loops import all_finite
from streamkpca._core.arrays import Array, Names
from streamkpca._core.parameters import show
from streamkpca.errors import plainly
from streamkpca.rows.bad_rows import check_finite
from streamkpca.rows.parts import CONVERTED_WHOLE, FEW_ROWS, RowParts, Rows, parts_of


def is_arrow(X: Any) -> bool:
    """Tell whether X offers a stream of Arrow's batches and is no DataFrame, which can be read without Arrow."""
    # A failed attribute lookup is too slow for single rows.
    return type(X) is not np.ndarray and hasattr(X, "__arrow_c_stream__") and not hasattr(X, "to_numpy")


def is_arrow_table(X: Any) -> bool:
    """Tell whether X is a table or a batch of pyarrow, whose rows can be read again and again."""
    pyarrow = sys.modules.get("pyarrow")
    return pyarrow is not None and isinstance(X, pyarrow.Table | pyarrow.RecordBatch)


def arrow_batches(X: Any) -> Iterator[Any]:
    """Yield the batches of a stream that have rows; all of it, without one, if it has no rows."""
    reader = _reader(X)
    batches = (batch for batch in reader if batch.num_rows)
    yield next(batches, None) or reader.schema.empty_table()
    yield from batches


def arrow_table(X: Any) -> Any:
    """Return a table of pyarrow with the rows of a stream, which is read to its end; X itself if it is no stream."""
    return _reader(X).read_all() if is_arrow(X) and not is_arrow_table(X) else X


def _reader(X: Any) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise ImportError(
            f"X is an Arrow stream ({type(X).__name__}), which pyarrow reads; "
            "pip install 'streamkpca[arrow]', or pass a DataFrame of pandas or polars"
        ) from None
    try:
        return pyarrow.RecordBatchReader.from_stream(X)
    except pyarrow.ArrowInvalid as error:
        raise TypeError(
            f"expected an Arrow stream of rows but got {type(X).__name__} ({str(error).splitlines()[0]}); "
            "pass a table, with a column for each feature"
        ) from None


def arrow_rows(table: Any) -> Array:
    """Turn a table of pyarrow into rows (n, d); missing cells become NaN, columns of no numbers a TypeError."""
    types, names = sys.modules["pyarrow"].types, table.schema.names
    numbers = types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null
    rows = np.empty((table.num_rows, len(names)))
    for j, column in enumerate(table.columns):
        kind = column.type
        if types.is_dictionary(kind):
            column, kind = column.cast(kind.value_type), kind.value_type
        if not any(is_kind(kind) for is_kind in numbers):
            raise TypeError(
                f"column {names[j]!r} of X holds {kind} but numbers are required; leave it out, convert it, "
                "or number its categories"
            )
        rows[:, j] = column.to_numpy(zero_copy_only=False) if hasattr(column, "buffers") else column.to_numpy()
    return rows


# Sums of squares of larger weights, or of weights below its inverse, would leave the range of float64.
LARGEST_WEIGHT = 1e100

_FLOAT64 = np.dtype(np.float64)

# Text of numbers.
_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?\s*", re.IGNORECASE)


def _check_shape(shape: tuple[int, ...], n_features: int | None = None) -> None:
    """Refuse anything but rows (n, d) with n and d of at least 1, and d as expected."""
    if len(shape) != 2:
        remedy = "flatten what follows the first axis: X.reshape(len(X), -1)"
        if len(shape) < 2:
            remedy = "Reshape your data: X.reshape(1, -1) makes it one row, X.reshape(-1, 1) one feature"
        raise ValueError(f"expected a 2D array (rows, features) but got {len(shape)}D. {remedy}")
    n, d = shape
    if n == 0 or d == 0:
        what = "sample" if n == 0 else "feature"
        raise ValueError(f"found 0 {what}(s) (shape=({n}, {d})) while a minimum of 1 is required.")
    if n_features is not None and d != n_features:
        raise ValueError(
            f"X has {d} features, but it is expecting {n_features} features as input "
            "(set by the first rows); bring the same columns in the same order, or fit anew"
        )


def as_sample_weight(sample_weight: Any, n: int, *, all_zero: bool = False) -> Array:
    """Turn sample weights into n finite numbers that are not negative, shape (n,).

    None stands for 1, and a number for the same weight for every row. All may be zero only if `all_zero` is True.
    """
    if sample_weight is None:
        return np.ones(n)
    values = _contiguous(_real_array(sample_weight, "sample_weight"))
    if values.ndim == 0:
        values = np.full(n, float(values))
    if values.shape != (n,):
        raise ValueError(f"sample_weight has shape {values.shape} but X has {n} rows; give one weight a row")
    usable = (values == 0) | ((values >= 1.0 / LARGEST_WEIGHT) & (values <= LARGEST_WEIGHT))
    if not usable.all():
        position = int(np.flatnonzero(~usable)[0])
        raise ValueError(
            f"sample_weight[{position}] is {values[position]} but must be finite and not negative: 0, or from "
            "1e-100 to 1e100; repair it, or multiply all weights by one number"
        )
    if not all_zero and not values.any():
        raise ValueError("sample_weight is zero for every row; leave the rows out instead")
    return values


def feature_names(X: Any) -> Names | None:
    """Read the column names of a DataFrame or a table of Arrow, if all are strings, as scikit-learn does; else None."""
    columns = X.schema.names if is_arrow_table(X) else getattr(X, "columns", None)
    if columns is None or not hasattr(X, "shape"):
        return None
    names = np.asarray(list(columns), dtype=object)
    return names if len(names) and all(isinstance(name, str) for name in names) else None


def check_parts(
    X: Any,
    n_features: int | None = None,
    names: Names | None = None,
    *,
    finite: bool = True,
    gaps: bool = False,
    learner: str = "",
) -> Rows:
    """Turn X into finite, C-contiguous float64 rows (n, d) of the expected width and column names.

    Sparse, large or converted rows become so where they are sliced. With `gaps`, NaN are gaps; without `finite`, any
    float is taken. Errors advise parameters of a stream after the words of `learner`, such as "give the model". X
    itself is returned if it is such an array; it is never written to.
    """
    if is_plain(X, n_features):
        return X
    X = arrow_table(X)
    _check_names(X, names)
    parts = _delay_conversion(X)
    rows: Rows = _contiguous(_real_array(X, "X")) if parts is None else parts
    _check_shape(rows.shape, n_features)
    if finite:
        check_finite(rows, gaps=gaps, learner=learner, names=feature_names(X) if names is None else names)
    elif parts is not None:
        for _ in parts_of(parts):
            # Anything else that is no number is refused before any row is used.
            pass
    return rows


def _delay_conversion(X: Any) -> RowParts | None:
    """Return the rows of a sparse matrix, a large table or array before conversion; None where that gains nothing."""
    if isinstance(X, RowParts):
        return X
    if hasattr(X, "tocsr"):
        if X.dtype.kind not in "fiub":
            raise TypeError(f"X is sparse with dtype {X.dtype} but real numbers are required; convert it first")
        rows = X.tocsr()
        return RowParts(X.shape, lambda start, stop: _contiguous(rows[start:stop].toarray()))
    shape: Any = getattr(X, "shape", None)
    if not isinstance(shape, tuple) or len(shape) != 2 or not all(isinstance(size, int) for size in shape):
        return None
    n, d = shape
    if n <= FEW_ROWS or n * d <= CONVERTED_WHOLE:
        return None
    # Tables of pandas, or of polars and Arrow.
    table = getattr(X, "iloc", X if hasattr(X, "slice") else None)
    if table is not None:
        return RowParts((n, d), lambda start, stop: _contiguous(_real_array(table[start:stop], "X", start)))
    values = _real_array(X, "X")
    if values.ndim != 2 or (values.dtype == _FLOAT64 and values.flags.c_contiguous):
        return None
    return RowParts((n, d), lambda start, stop: _contiguous(values[start:stop]))


def _check_names(X: Any, names: Names | None) -> None:
    given = feature_names(X)
    if names is not None and given is not None and not np.array_equal(given, names):
        unexpected = [name for name in given if name not in names]
        missing = [name for name in names if name not in given]
        raise ValueError(
            "The feature names should match those that were passed during fit. "
            + (f"Unexpected: {plainly(', '.join(unexpected))}. " if unexpected else "")
            + (f"Missing: {plainly(', '.join(missing))}. " if missing else "")
            + f"Pass the columns {plainly(', '.join(names))} in this order"
        )


def is_plain(X: Any, n_features: int | None) -> TypeGuard[Array]:
    """Tell whether X is some finite C-contiguous float64 rows of that width, which need no conversion and no checks."""
    return (
        type(X) is np.ndarray
        and X.dtype == _FLOAT64
        and X.ndim == 2
        and X.shape[1] == n_features
        and len(X) > 0
        and X.flags.c_contiguous
        and bool(all_finite(X))
    )


def _real_array(values: Any, name: str, first: int = 0) -> npt.NDArray[Any]:
    """Return an array of real numbers, and refuse what has no plain meaning as such; rows count from `first`."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise ValueError(f"{name} has masked values; fill or drop them first: {name}.filled(value)")
    if isinstance(values, str | bytes | PathLike) or values is None:
        remedy = "pass an array or a table, such as pandas.read_csv reads, or run streamkpca watch"
        raise TypeError(f"{name} must be an array of numbers, got {values!r}; {remedy}")
    if is_arrow(values):
        return arrow_rows(arrow_table(values))
    try:
        array = _numbers(_plain_array(values), is_table=hasattr(values, "columns"))
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{name} is not a rectangular array of numbers ({error})") from None
    kind = array.dtype.kind
    if kind == "c":
        raise ValueError(f"Complex data not supported; {name} must be real, pass {name}.real")
    if kind not in "fiub" and array.size:
        refusal = ValueError if kind in "SU" else TypeError
        raise refusal(_describe_first_cell(array, getattr(values, "columns", None), name, first))
    return array


def _describe_first_cell(array: npt.NDArray[Any], columns: Any, name: str, first: int) -> str:
    """Say where an array holds something else than numbers, and what helps; text that is a number comes last."""
    # As Python's own values; dates of nanoseconds would become numbers.
    cells = (array if array.dtype.kind in "Mm" else array.astype(object)).ravel()
    # Durations of numpy call themselves integers.
    wrong = [i for i, cell in enumerate(cells) if array.dtype.kind == "m" or not isinstance(cell, Real | np.bool_)]
    at = next((i for i in wrong if not _NUMBER.fullmatch(str(cells[i]))), wrong[0])
    cell, where = cells[at], f"place {at}"
    if array.ndim == 2:
        row, column = divmod(at, array.shape[1])
        where = f"row {first + row}, column {column if columns is None else columns[column]!r}"
    if isinstance(cell, date | timedelta | np.datetime64 | np.timedelta64):
        remedy = "leave dates and durations out, or pass them to Monitor.update as time=, by the name of their column"
    elif _NUMBER.fullmatch(str(cell)):
        remedy = f"convert it with {name}.astype(float)"
    elif not isinstance(cell, str):
        remedy = "encode, fill in or drop it (the argument must be a string or a number in every place)"
    elif _NUMBER.fullmatch(cell.replace(",", ".")):
        remedy = "write a decimal comma as a point, as pandas.read_csv does with decimal=','"
    else:
        remedy = "drop it, or give categories columns of their own, as by sklearn.preprocessing.OneHotEncoder"
    return f"{name} holds {show(cell)} at {where} but numbers are required; {remedy}"


def _contiguous(array: npt.NDArray[Any]) -> Array:
    """Convert numbers to float64 in C order; those too large become infinite, and the caller reports them as such."""
    with np.errstate(over="ignore"):
        return np.asarray(array, dtype=np.float64, order="C")


def _plain_array(values: Any) -> npt.NDArray[Any]:
    """Turn an array-like into an array; missing cells of numeric columns of pandas become NaN."""
    if not (hasattr(values, "columns") and hasattr(values, "to_numpy")):
        return np.asarray(values)
    if not hasattr(values, "iloc"):
        # polars would make numbers of dates.
        has_dates = any(dtype.is_temporal() for dtype in values.dtypes)
        return np.array(values.rows(), dtype=object) if has_dates else np.asarray(values.to_numpy())
    kinds = {getattr(dtype, "kind", "O") for dtype in values.dtypes}
    # Columns of types of pandas' own, or of several types, would become objects.
    return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan) if kinds <= set("fiub") else values.to_numpy())


def _numbers(array: npt.NDArray[Any], *, is_table: bool) -> npt.NDArray[Any]:
    """Convert an array of objects that are all numbers; None in a table, and pandas' NA anywhere, become NaN."""
    if array.dtype.kind != "O":
        return array
    # Where it marks a cell, pandas has been imported.
    pandas_na = getattr(sys.modules.get("pandas"), "NA", np.nan)
    absent = [value is pandas_na or (is_table and value is None) for value in array.ravel()]
    if any(absent):
        array = np.where(np.reshape(absent, array.shape), np.nan, array)
    numbers_only = all(isinstance(value, Real | np.bool_) for value in array.ravel())
    return array.astype(np.float64) if numbers_only else array
