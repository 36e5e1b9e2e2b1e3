"""Projections and scores written to a parquet or CSV file as they come."""

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_SUFFIXES = (".parquet", ".csv")


class ResultWriter:
    """One row of results for every row of input: position, label, novelty, projections.

    The file appears under its name when it is complete; until then it has ``.part`` appended, and an error in
    between removes it. Memory is one chunk.

    Parameters
    ----------
    path : str or Path
        Ends in ``.parquet`` or ``.csv``.

    Raises
    ------
    ValueError
        Another ending.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with ResultWriter(Path(folder) / "a.csv") as writer:
    ...         writer.write(np.zeros((2, 1)), np.array([0.5, 0.25]))
    ...     print((Path(folder) / "a.csv").read_text())
    "row","novelty","component_0"
    0,0.5,0
    1,0.25,0
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.suffix.lower() not in _SUFFIXES:
            raise ValueError(f"{self.path}: results are written as {' or '.join(_SUFFIXES)}; end the name so")
        self.n_rows = 0
        self._part = self.path.with_name(self.path.name + ".part")
        self._file: Any = None
        self._writer: Any = None

    def __enter__(self) -> Self:
        # Opened before anything is learned: a folder that cannot be written must not cost an hour first.
        self._file = self._part.open("wb")
        return self

    def write(self, projections: Array, novelty: Array, labels: npt.ArrayLike | None = None) -> None:
        """Append rows.

        Parameters
        ----------
        projections : ndarray of shape (n, q)
            q is the same in every call.
        novelty : ndarray of shape (n,)
            Scores.
        labels : array-like of shape (n,), optional
            Given in every call or in none.
        """
        import pyarrow

        columns: dict[str, Any] = {"row": np.arange(self.n_rows, self.n_rows + len(novelty))}
        if labels is not None:
            columns["label"] = np.asarray(labels)
        columns["novelty"] = novelty
        columns |= {f"component_{i}": projections[:, i] for i in range(projections.shape[1])}
        table = pyarrow.table(columns)
        if self._writer is None:
            self._writer = self._make_writer(table.schema)
        self._writer.write_table(table)
        self.n_rows += len(novelty)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()
        self._file.close()
        if kind is None and self._writer is not None:
            self._part.replace(self.path)
        else:
            self._part.unlink()

    def _make_writer(self, schema: Any) -> Any:
        if self.path.suffix.lower() == ".csv":
            from pyarrow import csv

            return csv.CSVWriter(self._file, schema)
        from pyarrow import parquet

        return parquet.ParquetWriter(self._file, schema)
