"""Kernels: small immutable values that combine, print as code, and evaluate fast.

A kernel compares features as they are; `Kernel.in_units` first divides them by units, or whitens them.

base, kinds, values : kernels and their algebra, the kinds by name, and what such values share
views, widths : the features that a kernel compares, in which units, and the rules for its width
program, gradients, logarithms : a kernel as steps on arrays, its derivatives, and values too small for a float
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
    kernel_from_json,
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
    "kernel_from_json",
]
