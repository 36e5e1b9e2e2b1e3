"""Kernels: small immutable values that combine, print as code, and evaluate fast.

A kernel compares features as they are; `Kernel.in_units` first divides them by units, or whitens them.
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
