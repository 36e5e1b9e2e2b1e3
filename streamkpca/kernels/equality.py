"""A kernel of categories: features that are equal or not."""

from dataclasses import dataclass

from streamkpca.kernels.base import Kernel, OnColumns
from streamkpca.kernels.program import Base, ProgramBuilder
from streamkpca.kernels.registry import register
from streamkpca.kernels.views import FeatureView


@register("equal")
@dataclass(frozen=True)
class Equal(Kernel):
    """The number of features in which two rows are equal, for categories.

    Notes
    -----
    This is the linear kernel of one-hot columns. Their squared distance is 2 (c - k) where k of c features are equal,
    so ``(2.0 * gamma * Equal()).exp()`` is their RBF kernel times exp(2 gamma c). Choose the columns that hold
    categories with ``.on(columns)``, and multiply with a kernel of the others.

    Categories are numbers; scikit-learn's `OrdinalEncoder` makes numbers of text. A category that no row had before is
    equal to none. Atoms that move keep their categories, and pre-images take those of the nearest row.

    Examples
    --------
    A load is normal or not depending on the state of the machine, in the second column:

    >>> from streamkpca.kernels import RBF
    >>> kernel = RBF(0.5).on(0) * (4.0 * Equal().on(1)).exp()
    >>> kernel.matrix([[3.0, 1.0]], [[3.0, 1.0], [3.0, 2.0]]).round(1)
    array([[54.6,  1. ]])
    """

    _of_equality = True

    def _lower(self, builder: ProgramBuilder, view: FeatureView) -> None:
        if view.matrix is not None:
            raise ValueError(
                "Equal: expected features as they are but in_units multiplies them by a matrix, which mixes "
                "categories; put it on the kernels of numbers alone: RBF().in_units(matrix).on([0, 1]) * Equal().on(2)"
            )
        # What is equal is equal in any unit.
        builder.load(Base.EQUAL, FeatureView(view.columns))


def category_columns(kernel: Kernel, d: int) -> set[int]:
    """Return the columns of rows of d features that a kernel compares for equality."""
    match kernel:
        case Equal():
            return set(range(d))
        case OnColumns(kernel=part, columns=columns):
            return {columns[column] for column in category_columns(part, len(columns))}
    return {column for part in kernel._parts() for column in category_columns(part, d)}
