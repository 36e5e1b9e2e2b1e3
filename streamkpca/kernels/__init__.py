"""Kernels: small immutable values that combine, print as code, and evaluate fast.

A kernel compares features as they are. ``kernel.in_units(units)`` first divides each by a unit: a known number, or the
range or standard deviation of the first rows. Features that vary together can be whitened: ``in_units("whitened")``.
"""

from streamkpca.kernels.base import Kernel
from streamkpca.kernels.kinds import (
    RBF,
    Cosine,
    Custom,
    Equal,
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
    "Equal",
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
