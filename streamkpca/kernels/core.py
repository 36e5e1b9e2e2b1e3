"""What every kernel answers: values, settled parameters, its program."""

from abc import ABC, abstractmethod
from dataclasses import fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from streamkpca._cached import cached_property
from streamkpca.kernels.planes import Array
from streamkpca.kernels.programs import Listing, Program
from streamkpca.kernels.views import View
from streamkpca.validation import as_rows, as_sample_weight


class KernelValue(ABC):
    """A function of two rows, as a value: a frozen dataclass whose fields are parameters and parts."""

    _stationary: ClassVar[bool] = False
    _positive_definite: ClassVar[bool] = True
    _compiled: ClassVar[bool] = True
    _divides: ClassVar[bool] = False

    def matrix(self, X: Any, Y: Any = None) -> Array:
        """Evaluate the kernel for all pairs of rows.

        Parameters
        ----------
        X : array-like of shape (n, d)
        Y : array-like of shape (m, d), optional
            X itself by default; the result is then exactly symmetric.

        Returns
        -------
        ndarray of shape (n, m)

        Raises
        ------
        TypeError, ValueError
            X or Y are not finite rows of the same width, the kernel names a column that they do not have,
            they are out of range in its units, or it is not settled.

        Notes
        -----
        Inner products and squared distances come from BLAS, O(n m d); distances that cancellation has spoiled
        are summed anew, so equal rows are exactly at distance 0 and large offsets do no harm. Beside the
        result, memory is a few MB whatever n and m.

        Examples
        --------
        >>> from streamkpca.kernels import RBF
        >>> RBF(0.5).matrix([[0.0], [1.0]], [[0.0]]).round(3)
        array([[1.   ],
               [0.607]])
        """
        where = f"{type(self).__name__}.matrix"
        left = self._checked(X, where)
        if Y is None:
            return self.program.gram(left)
        right = as_rows(Y, where=where)
        self.check_range(right, where)
        if left.shape[1] != right.shape[1]:
            raise ValueError(
                f"{where}: X has {left.shape[1]} features but Y has {right.shape[1]}; pass rows with the same columns"
            )
        return self.program.matrix(left, right)

    def diagonal(self, X: Any) -> Array:
        """Evaluate the kernel for every row with itself.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n,)

        Raises
        ------
        TypeError, ValueError
            As `matrix` raises them.

        Examples
        --------
        >>> from streamkpca.kernels import Linear
        >>> Linear().diagonal([[3.0, 4.0]])
        array([25.])
        """
        return self.program.diagonal(self._checked(X, f"{type(self).__name__}.diagonal"))

    def parameters(self) -> dict[str, Any]:
        """Return the parameters, with those of its parts by paths such as ``left__gamma``.

        Returns
        -------
        dict

        Examples
        --------
        >>> from streamkpca.kernels import RBF
        >>> (2.0 * RBF(0.5)).parameters()
        {'scale': 2.0, 'kernel': RBF(gamma=0.5), 'kernel__gamma': 0.5}
        """
        found = {}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            found[field.name] = value
            if isinstance(value, KernelValue):
                found |= {f"{field.name}__{path}": part for path, part in value.parameters().items()}
        return found

    def with_parameter(self, path: str, value: Any, *, where: str = "with_parameter") -> Self:
        """Make the kernel with another value of a parameter.

        Parameters
        ----------
        path : str
            As `parameters` names them.
        value : object
        where : str
            Who asks, for the error text.

        Returns
        -------
        Kernel

        Raises
        ------
        TypeError, ValueError
            There is no such parameter, or it cannot have that value.

        Examples
        --------
        >>> from streamkpca.kernels import RBF, Linear
        >>> (RBF(0.5) + Linear()).with_parameter("left__gamma", 0.1)
        RBF(gamma=0.1) + Linear()
        """
        known = self.parameters()
        if path not in known:
            raise ValueError(
                f"{where}: the kernel {self!r} has no parameter {path!r}; it has {', '.join(known) or 'none'}"
            )
        name, _, rest = path.partition("__")
        return self._replaced(name, known[name].with_parameter(rest, value, where=where) if rest else value)

    def settled(self, X: Any, sample_weight: Any = None) -> Self:
        """Replace words such as "spread", "median" and "range" by numbers that fit the given rows.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows of the kind that the kernel will see.
        sample_weight : array-like of shape (n,), float or None
            What each row counts; 1 by default.

        Returns
        -------
        Kernel
            Of the same form; this kernel itself where nothing is left to settle.

        Raises
        ------
        TypeError, ValueError
            X is not finite rows, lacks a column that the kernel names, or is out of range in its units; the weights are
            not, or all are zero.

        Examples
        --------
        >>> from streamkpca.kernels import RBF
        >>> RBF("scale").settled([[0.0], [4.0]])
        RBF(gamma=0.25)
        """
        where = f"{type(self).__name__}.settled"
        rows = self._checked(X, where)
        weights = None
        if sample_weight is not None:
            weights = as_sample_weight(sample_weight, len(rows), where=where)
            rows, weights = rows[weights > 0.0], weights[weights > 0.0]
        if self.is_settled:
            return self
        kernel = self._settle(rows, None if weights is None or np.all(weights == weights[0]) else weights)
        kernel.check_range(rows, where)
        return kernel

    @cached_property
    def is_settled(self) -> bool:
        """Whether all parameters are numbers.

        Examples
        --------
        >>> from streamkpca.kernels import RBF
        >>> kernel = RBF(gamma="scale")
        >>> kernel.is_settled, kernel.settled([[1.0], [3.0]]).is_settled
        (False, True)
        """
        values = (getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]
        return not any(isinstance(value, str) for value in values) and all(part.is_settled for part in self._parts())

    @cached_property
    def is_stationary(self) -> bool:
        """Whether values are known to depend on x - y alone.

        Examples
        --------
        >>> from streamkpca.kernels import RBF, Linear, Matern
        >>> (RBF(1.0) + Matern(1.5)).is_stationary, (RBF(1.0) * Linear()).is_stationary
        (True, False)
        """
        parts = self._parts()
        return all(part.is_stationary for part in parts) if parts else self._stationary

    @property
    def is_positive_definite(self) -> bool:
        """Whether values are known to be inner products, whatever the rows.

        Examples
        --------
        >>> from streamkpca.kernels import RBF, Sigmoid
        >>> RBF(1.0).is_positive_definite, (RBF(1.0) + Sigmoid(gamma=1.0)).is_positive_definite
        (True, False)
        """
        parts = self._parts()
        return all(part.is_positive_definite for part in parts) if parts else self._positive_definite

    @cached_property
    def has_units(self) -> bool:
        """Whether some part sees rows in units.

        Examples
        --------
        >>> from streamkpca.kernels import RBF
        >>> RBF(1.0).has_units, RBF(1.0).in_units([100.0, 0.5]).has_units
        (False, True)
        """
        return self._divides or any(part.has_units for part in self._parts())

    @property
    def is_compiled(self) -> bool:
        """Whether no function of the caller is asked, which may not be made for many threads.

        Examples
        --------
        >>> from streamkpca.kernels import RBF, Custom
        >>> RBF(1.0).is_compiled, (RBF(1.0) + Custom(lambda X, Y: X @ Y.T)).is_compiled
        (True, False)
        """
        return self._compiled and all(part.is_compiled for part in self._parts())

    @cached_property
    def program(self) -> Program:
        """The kernel lowered to flat arrays, for callers whose rows are valid already.

        Raises
        ------
        ValueError
            The kernel is not settled.

        Examples
        --------
        >>> import numpy as np
        >>> from streamkpca.kernels import RBF
        >>> program = (2.0 * RBF(0.5)).program
        >>> program.gram(np.array([[0.0], [2.0]])).round(3)
        array([[2.   , 0.271],
               [0.271, 2.   ]])
        """
        if not self.is_settled:
            raise ValueError(
                f"{type(self).__name__}: expected all parameters to be numbers, but {self!r} still takes "
                "some from data; call kernel.settled(X) with rows of that kind and use what it returns"
            )
        listing = Listing()
        self._lower(listing, View())
        return listing.finish()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the program: it is made anew where it is needed."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def _replaced(self, name: str, value: Any) -> Self:
        """Make the kernel with another value of one of its own parameters."""
        return replace(self, **{name: value})  # type: ignore[type-var]

    @abstractmethod
    def _lower(self, listing: Listing, view: View) -> None:
        """Write the steps that leave k(x, y) of what is seen of rows on top of the stack."""

    def _parts(self) -> tuple["KernelValue", ...]:
        """Give the kernels that this one is made of."""
        values = (getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]
        return tuple(value for value in values if isinstance(value, KernelValue))

    def _settle(self, X: Array, weights: Array | None) -> Self:
        """Settle all parts on rows that are known to be valid."""
        changes = {}
        for field in fields(self):  # type: ignore[arg-type]
            part = getattr(self, field.name)
            if isinstance(part, KernelValue):
                changes[field.name] = part._settle(self._seen(X), weights)
        return replace(self, **changes) if changes else self  # type: ignore[type-var]

    def check_width(self, d: int, where: str) -> None:
        """Refuse rows that lack a column which the kernel names.

        Parameters
        ----------
        d : int
            Number of columns.
        where : str
            Who asks, for the error text.

        Raises
        ------
        ValueError
            A column is missing.

        Examples
        --------
        >>> from streamkpca.kernels import RBF
        >>> RBF(1.0).on([0, 4]).check_width(3, "partial_fit")
        Traceback (most recent call last):
            ...
        ValueError: partial_fit: the kernel RBF(gamma=1.0).on((0, 4)) uses column 4 but got rows with 3 ...
        """
        for part in self._parts():
            part.check_width(d, where)

    def check_range(self, X: Array, where: str) -> None:
        """Refuse rows that are out of range in the units of the kernel, as far as they are numbers.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Finite rows with all columns that the kernel names.
        where : str
            Who asks, for the error text.

        Raises
        ------
        ValueError
            Rows that are divided by their units are too large.

        Examples
        --------
        >>> import numpy as np
        >>> from streamkpca.kernels import RBF
        >>> RBF(1.0).in_units([1e-100]).check_range(np.array([[1e60]]), "partial_fit")
        Traceback (most recent call last):
            ...
        ValueError: partial_fit: ...
        """
        if self.has_units:
            for part in self._parts():
                part.check_range(self._seen(X), where)

    def _seen(self, X: Array) -> Array:
        """Give what the parts see of rows."""
        return X

    def _checked(self, X: Any, where: str) -> Array:
        rows = as_rows(X, where=where)
        self.check_width(rows.shape[1], where)
        self.check_range(rows, where)
        return rows

    def _set(self, name: str, value: Any) -> None:
        """Write a checked parameter into the frozen value under construction."""
        object.__setattr__(self, name, value)
