"""A C file being written: its tables, its functions, and how numbers are spelled."""

import textwrap
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

_WIDTH = 110


class Source:
    """A C file being written.

    Parameters
    ----------
    name : str
        What all names in it begin with.
    dtype : {"double", "float"}
        Type of all numbers in it.

    Attributes
    ----------
    tables, functions : list of str
        What was written so far.
    n_bytes : int
        What the tables take.
    """

    def __init__(self, name: str, dtype: str) -> None:
        self.name = name
        self.dtype = dtype
        self.tables: list[str] = []
        self.functions: list[str] = []
        self.n_bytes = 0
        self._known: dict[tuple[tuple[int, ...], bytes], str] = {}

    @property
    def is_single(self) -> bool:
        """Whether numbers are of single precision."""
        return self.dtype == "float"

    @property
    def n_bytes_of_number(self) -> int:
        """Size of a number."""
        return 4 if self.is_single else 8

    def number(self, value: float) -> str:
        """Spell a constant so that the compiler reads the same number.

        Parameters
        ----------
        value : float

        Returns
        -------
        str

        Raises
        ------
        ValueError
            It is beyond single precision, or lost in it.
        """
        if self.is_single and not np.array_equal(_singles(np.array([value])) == 0.0, [value == 0.0]):
            raise _beyond_single(value)
        return self._spelled(np.array([value]))[0]

    def call(self, function: str, argument: str) -> str:
        """Spell a call of a function of <math.h>.

        Parameters
        ----------
        function : str
            What it is called for double.
        argument : str

        Returns
        -------
        str
        """
        return f"{function}f({argument})" if self.is_single else f"{function}({argument})"

    def table(self, what: str, values: Array) -> str:
        """Write a table of numbers, or find an equal one.

        Parameters
        ----------
        what : str
            What it holds: the last part of its name.
        values : ndarray of shape (n,) or (n, c)

        Returns
        -------
        str
            Its name.

        Raises
        ------
        ValueError
            A number is beyond single precision.
        """
        key = values.shape, values.tobytes()
        if key not in self._known:
            rows = [self._spelled(row) for row in np.atleast_2d(values)]
            self._known[key] = self._write(what, self.dtype, values.shape, rows)
            self.n_bytes += values.size * self.n_bytes_of_number
        return self._known[key]

    def divisors(self, what: str, values: Array) -> str:
        """Write a table of numbers to divide by.

        Parameters
        ----------
        what : str
            What it holds: the last part of its name.
        values : ndarray of shape (n,)
            Not zero.

        Returns
        -------
        str
            Its name.

        Raises
        ------
        ValueError
            A number is beyond single precision, or lost in it.
        """
        for value in values.tolist():
            self.number(value)
        return self.table(what, values)

    def positions(self, what: str, values: Positions) -> str:
        """Write a table of positions.

        Parameters
        ----------
        what : str
            What it holds: the last part of its name.
        values : ndarray of shape (n,)

        Returns
        -------
        str
            Its name.
        """
        dtype, n_bytes = ("unsigned short", 2) if int(values.max()) < 2**16 else ("unsigned long", 4)
        self.n_bytes += values.size * n_bytes
        return self._write(what, dtype, values.shape, [[str(value) for value in values.tolist()]])

    def function(self, comment: str, head: str, lines: Sequence[str]) -> None:
        """Write a function.

        Parameters
        ----------
        comment : str
        head : str
            From its type to its arguments.
        lines : sequence of str
            What it does.
        """
        body = "".join(f"    {line}\n" for line in lines)
        note = textwrap.fill(f"/* {comment} */", _WIDTH, subsequent_indent="   ")
        self.functions.append(f"{note}\n{head}\n{{\n{body}}}\n")

    def _spelled(self, values: Array) -> list[str]:
        # The shortest decimals that name the number: hexadecimal ones are no C++ before 2017.
        if not self.is_single:
            return [repr(value) for value in values.tolist()]
        return [f"{single!s}f" for single in _singles(values)]

    def _write(self, what: str, dtype: str, shape: tuple[int, ...], rows: list[list[str]]) -> str:
        name, sizes = f"{self.name}_{what}", "".join(f"[{size}]" for size in shape)
        ends = ("{", "}") if len(shape) > 1 else ("", "")
        texts = [textwrap.fill(ends[0] + ", ".join(row) + ends[1], _WIDTH, break_on_hyphens=False) for row in rows]
        listed = textwrap.indent(",\n".join(texts), "    ")
        self.tables.append(f"static const {dtype} {name}{sizes} = {{\n{listed}\n}};\n")
        return name


def _singles(values: Array) -> npt.NDArray[np.float32]:
    with np.errstate(all="ignore"):
        singles = values.astype(np.float32)
    if not np.isfinite(singles).all():
        raise _beyond_single(float(values[~np.isfinite(singles)][0]))
    return singles


def _beyond_single(value: float) -> ValueError:
    return ValueError(
        f'to_c: expected numbers of single precision for dtype="float" but this model needs {value!r}; '
        'scale the features, or use dtype="double"'
    )
