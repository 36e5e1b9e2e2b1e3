"""A kernel that the caller computes."""

from dataclasses import dataclass
from typing import Any, Self

from streamkpca.kernels.base import Kernel
from streamkpca.kernels.program import Base, PairFunction, ProgramBuilder, RowFunction
from streamkpca.kernels.views import FeatureView


@dataclass(frozen=True, init=False)
class Custom(Kernel):
    """A kernel that the caller computes.

    Parameters
    ----------
    function : callable
        ``function(X, Y)`` for rows (n, d) and (m, d) returns the values, of shape (n, m). It is called with
        parts of the rows, so every value must depend on its own two rows alone. It must be symmetric and
        positive semidefinite, and must not change its arguments.
    diagonal : callable, optional
        ``diagonal(X)`` returns the values of rows with themselves, of shape (n,). Without it they are computed
        one row at a time.

    Raises
    ------
    TypeError
        An argument cannot be called.

    Examples
    --------
    >>> import numpy as np
    >>> overlap = Custom(lambda X, Y: np.minimum(X[:, None], Y[None]).sum(axis=2))
    >>> overlap.matrix([[1.0, 5.0]], [[3.0, 2.0]])
    array([[3.]])
    """

    _positive_definite = False
    _compiled = False

    function: PairFunction
    of_rows: RowFunction | None

    # Written out because the argument `diagonal` has the name of a method, which a field would replace.
    def __init__(self, function: PairFunction, *, diagonal: RowFunction | None = None) -> None:
        if not callable(function):
            raise TypeError(
                f"Custom: expected a function of rows, function(X, Y) of shape (n, m), but got {function!r}"
            )
        if diagonal is not None and not callable(diagonal):
            raise TypeError(
                f"Custom: expected diagonal to be a function of rows, diagonal(X) of shape (n,), or None, "
                f"but got {diagonal!r}"
            )
        self._set("function", function)
        self._set("of_rows", diagonal)

    def __repr__(self) -> str:
        diagonal = "" if self.of_rows is None else f", diagonal={self.of_rows!r}"
        return f"Custom({self.function!r}{diagonal})"

    def _replaced(self, name: str, value: Any) -> Self:
        given = {"function": self.function, "of_rows": self.of_rows, name: value}
        return type(self)(given["function"], diagonal=given["of_rows"])

    def _lower(self, builder: ProgramBuilder, view: FeatureView) -> None:
        builder.load(Base.CUSTOM, view, self.function, self.of_rows)
