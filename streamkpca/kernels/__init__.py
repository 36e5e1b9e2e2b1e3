"""Kernels: small immutable values that combine, print as code, and evaluate fast.

A kernel compares features as they are; `Kernel.in_units` first divides them by units.

base : the class `Kernel`, and the sums, products, powers, ... that its operators make
kinds : `RBF` and the other kernels, by name and from JSON
values : what makes kernels values: equality, printing, JSON
views : the features that a kernel compares, and their units
widths : the rules that find a width from rows
program : a kernel as steps on arrays, which loops, exports and gradients run
gradients : derivatives by rows
logarithms : values too small for a float
_loops : the compiled loops of programs and distances
"""

from streamkpca.kernels.base import Kernel
from streamkpca.kernels.kinds import (
    RBF,
    Cosine,
    Custom,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
    kernel_from,
)

__all__ = [
    "RBF",
    "Cosine",
    "Custom",
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern",
    "Polynomial",
    "RationalQuadratic",
    "Sigmoid",
    "kernel_from",
]
