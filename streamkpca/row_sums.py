"""Weighted sums over rows: of kernel values, or of coordinates."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from streamkpca._blas import lower_self_product
from streamkpca.distance_loops import mirror_lower
from streamkpca.factor import apply_inverse

Array = npt.NDArray[np.float64]


def gram_of(vectors: Array) -> Array:
    """Sum the products of vectors with themselves, sum v_n v_n^T; O(B m^2).

    Parameters
    ----------
    vectors : ndarray of shape (B, m)
        C-contiguous.

    Returns
    -------
    ndarray of shape (m, m)
        Symmetric to the bit.
    """
    gram = lower_self_product(vectors)
    mirror_lower(gram, 0, 0, *gram.shape)
    return gram


def weighted_gram(vectors: Array, weights: Array) -> Array:
    """Sum the products of vectors with themselves, sum a_n v_n v_n^T; O(B m^2).

    Parameters
    ----------
    vectors : ndarray of shape (B, m)
    weights : ndarray of shape (B,)

    Returns
    -------
    ndarray of shape (m, m)
        Symmetric to the bit.
    """
    # The usual case, all weights 1, costs no scaled copy.
    even = bool(np.all(weights == 1.0))
    return gram_of(np.ascontiguousarray(vectors) if even else vectors * np.sqrt(weights)[:, None])


@dataclass(frozen=True)
class RowSums:
    """Weighted sums over rows x_n that are given as vectors v_n of m numbers.

    Parameters
    ----------
    total_weight : float
        N = sum a_n.
    total_squared_weight : float
        sum a_n^2, for Bessel's correction.
    energy : float
        E = sum a_n k(x_n, x_n).
    largest_energy : float
        Largest k(x, x) of a row that counted when it came.
    first : ndarray of shape (m,)
        sum a_n v_n.
    second : ndarray of shape (m, m)
        sum a_n v_n v_n^T.
    """

    total_weight: float
    total_squared_weight: float
    energy: float
    largest_energy: float
    first: Array
    second: Array

    @classmethod
    def zero(cls, m: int = 0) -> Self:
        """Return the sums over no row at all."""
        return cls(0.0, 0.0, 0.0, 0.0, np.zeros(m), np.zeros((m, m)))

    @classmethod
    def of(cls, vectors: Array, energy: Array, weights: Array) -> Self:
        """Sum over a block, O(B m^2).

        Parameters
        ----------
        vectors : ndarray of shape (B, m)
        energy : ndarray of shape (B,)
            k(x, x).
        weights : ndarray of shape (B,)

        Returns
        -------
        RowSums
        """
        return cls(
            total_weight=float(weights.sum()),
            total_squared_weight=float(weights @ weights),
            energy=float(weights @ energy),
            largest_energy=float(energy.max(where=weights > 0.0, initial=0.0)),
            first=weights @ vectors,
            second=weighted_gram(vectors, weights),
        )

    def plus(self, other: "RowSums") -> Self:
        """Add sums over other rows."""
        return replace(
            self,
            total_weight=self.total_weight + other.total_weight,
            total_squared_weight=self.total_squared_weight + other.total_squared_weight,
            energy=self.energy + other.energy,
            largest_energy=max(self.largest_energy, other.largest_energy),
            first=self.first + other.first,
            second=self.second + other.second,
        )

    def decayed(self, factor: float) -> Self:
        """Let all rows count `factor` times what they did.

        Parameters
        ----------
        factor : float
            From 0 to 1.

        Returns
        -------
        RowSums
        """
        return replace(
            self,
            total_weight=self.total_weight * factor,
            # One after the other: the square of a small factor is below all numbers.
            total_squared_weight=self.total_squared_weight * factor * factor,
            energy=self.energy * factor,
            first=self.first * factor,
            second=self.second * factor,
        )

    def solved(self, inverse: Array) -> Self:
        """Sum over the same rows, given as L^-1 v_n; O(m^3), at half the price of `mapped`.

        Parameters
        ----------
        inverse : ndarray of shape (m, m)
            Lower triangular L^-1.

        Returns
        -------
        RowSums
        """
        half = apply_inverse(inverse, self.second.copy())
        second = apply_inverse(inverse, np.ascontiguousarray(half.T))
        return replace(self, first=inverse @ self.first, second=0.5 * (second + second.T))

    def mapped(self, matrix: Array) -> Self:
        """Sum over the same rows, given as A v_n; O(m^3).

        Parameters
        ----------
        matrix : ndarray of shape (k, m)
            A.

        Returns
        -------
        RowSums
        """
        second = matrix @ self.second @ matrix.T
        return replace(self, first=matrix @ self.first, second=0.5 * (second + second.T))
