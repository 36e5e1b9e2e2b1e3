"""A fit in the four verbs of engines that split work: an empty state, add rows, merge states, finish.

Every function depends on its arguments alone, so a lost part can be computed again, to the byte.
"""

import copy
import secrets
from typing import Any, Final, Self

from streamkpca.errors import CheckpointError, name_errors, text_of
from streamkpca.kernels import Kernel
from streamkpca.models.streaming import StreamingKernelPCA, check_template, merge
from streamkpca.stream.state import State

__all__ = ["Aggregate"]

# A state needs no axes, so it computes as few as possible, as rarely as possible.
_NO_AXES: Final = {"n_components": 1, "noise_variance": None, "n_active": None, "axes": "ritz", "refit_every": 2**31}
# The extra data of its checkpoints.
_MARK: Final = "aggregate"


@name_errors
class Aggregate:
    """The state of a fit that many workers share; rows are added to it, and states are merged.

    Parameters
    ----------
    template : StreamingKernelPCA
        Its parameters are those of the model to come. Its kernel must be settled, by numbers or by rows that it has
        learned, and its rows must not fade: let `sample_weight` say what old rows count. Every state begins with the
        atoms of the template, if it has any, but counts none of its rows.

    Raises
    ------
    TypeError, ValueError
        The template is no StreamingKernelPCA, a parameter is invalid, the scale of the kernel is not settled, or there
        is a `half_life`.

    Empty states are neutral. States with the same atoms merge in any order and grouping with the same result, up to
    rounding; where workers found atoms of their own, the result depends on the order within the model's error bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.aggregate import Aggregate
    >>> rows = np.random.default_rng(0).normal(size=(8000, 3))
    >>> empty = Aggregate(StreamingKernelPCA(2, max_atoms=16).partial_fit(rows[:2000])).to_bytes()
    >>> parts = [Aggregate.from_bytes(empty).add(part).to_bytes() for part in np.split(rows, 4)]
    >>> whole = Aggregate.from_bytes(empty)
    >>> for part in parts:
    ...     whole = whole.merge(Aggregate.from_bytes(part))
    >>> whole.finish().n_samples_seen_, whole.zero().n_rows_, whole.kernel_.is_settled
    (8000, 0, True)
    """

    def __init__(self, template: StreamingKernelPCA) -> None:
        check_template(template)
        if template.half_life is not None:
            raise ValueError(
                f"expected half_life=None but got {template.half_life!r}, by which a row would count as the rows of "
                "other workers come later; give rows the weights 0.5 ** (age / half_life)"
            )
        begun = template.without_rows()
        kernel = begun.settings().kernel
        if not kernel.is_settled:
            raise ValueError(
                f"expected a kernel whose scale is settled but got {kernel!r}; let the template learn some "
                "rows first, or give the scale as a number, as workers would each settle it on rows of their own"
            )
        state = getattr(begun, "state_", None)
        seed = begun.random_state if state is None else state.seed
        seed = secrets.randbits(63) if seed is None else seed
        self._parameters = begun.get_params(deep=False) | {"kernel": kernel, "random_state": seed}
        self._model = _model_of(self._parameters | _NO_AXES, state)

    @property
    def n_rows_(self) -> int:
        """Number of rows added, to this state and to those merged into it."""
        stream = getattr(self._model, "state_", None)
        return 0 if stream is None else stream.n_rows

    @property
    def kernel_(self) -> Kernel:
        """The kernel, its scale settled; the same in all states that can be merged."""
        kernel: Kernel = self._parameters["kernel"]
        return kernel

    def zero(self) -> Self:
        """Return an empty state: it begins with the present atoms of this one, but counts none of its rows."""
        empty = copy.copy(self)
        empty._model = self._model.without_rows()
        return empty

    def add(self, X: Any, sample_weight: Any = None) -> Self:
        """Add rows to this state; rows added in one call or in many give the same bytes.

        Parameters
        ----------
        X : array-like of shape (n, d)
            There may be none.
        sample_weight : array-like of shape (n,), float or None
            Weight of each row; 1 by default.

        Raises
        ------
        TypeError, ValueError
            As `StreamingKernelPCA.partial_fit`; then this state is as before.
        """
        if len(X):
            self._model.partial_fit(X, sample_weight=sample_weight)
        return self

    def merge(self, *others: "Aggregate") -> Self:
        """Add the rows of other states to this one, numbered after its own.

        O(m^2) where the atoms are the same, O(m^3) otherwise.

        Parameters
        ----------
        *others : Aggregate
            States of the same template, in the order of their rows; they stay.

        Raises
        ------
        TypeError, ValueError
            One is no `Aggregate`, or has other parameters, features or column names; then this state is as before.
        """
        for other in others:
            if not isinstance(other, Aggregate):
                raise TypeError(
                    f"expected an Aggregate but got {type(other).__name__}; add rows with add, and merge "
                    "models with streamkpca.merge"
                )
            for name, value in self._parameters.items():
                if other._parameters[name] != value:
                    raise ValueError(
                        f"expected a state with {name}={value!r} but got {name}={other._parameters[name]!r}; "
                        "make all states from one template, by zero or from its bytes"
                    )
        states: list[Aggregate] = [self, *others]
        models = [state._model for state in states if state.n_rows_]
        if len(models) > 1:
            self._model = merge(*models)
        elif models:
            # Merging a single one would take its pending rows for a whole block.
            self._model = copy.copy(models[0])
        return self

    def finish(self) -> StreamingKernelPCA:
        """Make the model of all rows, with the parameters of the template and the settled kernel; this state stays.

        Raises
        ------
        ValueError
            There were no rows, or all of them had weight 0.
        """
        model = _model_of(self._parameters, getattr(self._model, "state_", None))
        if not self.n_rows_ or not model.refit().total_weight_:
            raise ValueError("found no rows to learn from; add at least 1 finite row of positive weight")
        return model

    def to_bytes(self) -> bytes:
        """Return a checkpoint of everything that determines the state; the same state gives the same bytes."""
        return _model_of(self._parameters, getattr(self._model, "state_", None)).to_bytes(_MARK)

    @classmethod
    def from_bytes(cls, data: bytes, *, kernel: Kernel | None = None) -> Self:
        """Read a state that `to_bytes` wrote.

        Parameters
        ----------
        data : bytes
        kernel : Kernel, optional
            The settled kernel, needed only if it has functions of the caller, which are never stored.

        Raises
        ------
        CheckpointError
            The bytes are damaged, or not those of an `Aggregate`.
        """
        try:
            model = StreamingKernelPCA.from_bytes(data, kernel=kernel)
            if model.extra_ != _MARK:
                raise CheckpointError("they are a model's; read them with StreamingKernelPCA.from_bytes")
            state = cls(model)
        except ValueError as error:
            reason = text_of(error).removeprefix("from_bytes: ")
            raise CheckpointError(f"Aggregate.from_bytes: the bytes are not those of an Aggregate: {reason}") from None
        state._model.state_ = getattr(model, "state_", None)
        return state


def _model_of(parameters: dict[str, Any], state: State | None) -> StreamingKernelPCA:
    model = StreamingKernelPCA(**parameters)
    model.state_ = state
    return model
