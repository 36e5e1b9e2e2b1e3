"""A kernel of every kind, for tests that hold for all of them."""

import contextlib

import numba
import numpy as np

from streamkpca.kernels import (
    RBF,
    Cosine,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
)

PRIMITIVES = [
    Linear(),
    Polynomial(3, gamma=0.3, coef0=0.5),
    RBF(0.4),
    Laplacian(0.4),
    Matern(0.5, length_scale=1.7),
    Matern(1.5, length_scale=1.7),
    Matern(2.5, length_scale=1.7),
    RationalQuadratic(1.0, length_scale=1.7),
    RationalQuadratic(0.3, length_scale=1.7),
    Cosine(),
    Sigmoid(0.05, coef0=0.5),
]
STATIONARY = [kernel for kernel in PRIMITIVES if kernel.is_stationary]


def quiet():
    """Uncompiled, the loops are numpy scalars, which warn where machine code is silent."""
    return np.errstate(all="ignore") if numba.config.DISABLE_JIT else contextlib.nullcontext()
