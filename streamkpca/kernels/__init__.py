"""Kernels: small immutable values that combine, print as code, and evaluate fast.

A kernel compares features as they are. ``kernel.in_units(units)`` first divides each by a unit: a known number, or the
range or standard deviation of the first rows. Features that vary together can be whitened: ``in_units("whitened")``.
"""

from streamkpca.kernels.base import Kernel
from streamkpca.kernels.custom import Custom
from streamkpca.kernels.dot_product import Cosine, Linear, Polynomial, Sigmoid
from streamkpca.kernels.equality import Equal
from streamkpca.kernels.registry import kernel_from, kernel_from_json
from streamkpca.kernels.stationary import RBF, Laplacian, Matern, RationalQuadratic

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
