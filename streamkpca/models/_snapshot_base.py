"""Estimators that answer from a snapshot: atoms, weights, active atoms."""

import numpy as np
import numpy.typing as npt

from streamkpca._core.reservoir import are_outside, origins_of
from streamkpca.models._base import Estimator

Array = npt.NDArray[np.float64]

# Rows of a batch that its snapshot samples: the default size of a stream's reservoir.
SAMPLE = 512


class SnapshotEstimator(Estimator):
    """Base of the estimators that answer from a snapshot; the streaming one overrides two hooks.

    Examples
    --------
    >>> from streamkpca import SparseKernelPCA
    >>> model = SparseKernelPCA(1, kernel="linear", noise_variance=0.5, center=False).fit([[2.0, 0.0], [0.0, 0.5]])
    >>> model.weights_.round(3), model.active_, model.n_active_  # the second row's energy, 0.125, is below the noise
    (array([0.375, 0.   ]), array([ True, False]), 1)
    >>> model.noise_variance_, model.unexplained_energy_ratio_
    (0.5, 0.0)
    """

    @property
    def atom_rows_(self) -> npt.NDArray[np.int64]:
        """Positions of the atoms in the stream, counted from 0; -1 for one that is no row of it; shape (m,)."""
        positions = self._fitted("atom_rows_").atom_rows
        rows = np.where(are_outside(positions), -1, np.maximum(positions, -1))
        rows.flags.writeable = False
        return rows

    @property
    def atom_origins_(self) -> npt.NDArray[np.int64]:
        """Positions of the rows that the atoms began as, counted from 0; -1 for no row of this stream; shape (m,).

        Examples
        --------
        >>> from streamkpca import StreamingKernelPCA, kernels
        >>> model = StreamingKernelPCA(1, kernel=kernels.RBF(0.5), max_atoms=1).fit([[0.0], [1.0], [0.0], [1.0]])
        >>> model.atom_origins_, model.atom_rows_, model.atoms_.round(2)
        (array([2]), array([-1]), array([[0.5]]))
        """
        positions = self._fitted("atom_origins_").atom_rows
        rows = np.where(are_outside(positions), -1, origins_of(positions))
        rows.flags.writeable = False
        return rows

    @property
    def weights_(self) -> Array:
        """Weight of each atom in the axes; shape (m,)."""
        return self._fitted("weights_").weights

    @property
    def active_(self) -> npt.NDArray[np.bool_]:
        """Atoms that projections use; shape (m,)."""
        return self._fitted("active_").weights > 0.0

    @property
    def n_active_(self) -> int:
        """Number of atoms that projections use."""
        return int(np.count_nonzero(self._fitted("n_active_").weights))

    @property
    def noise_variance_(self) -> float | None:
        """Noise variance sigma^2 of the likelihood, in units of k(x, x); None without a likelihood."""
        return self._fitted("noise_variance_").noise_variance

    @property
    def eigenvalue_bounds_(self) -> Array:
        """Lower and upper bounds of the eigenvalues that kernel PCA of all rows would have; shape (q, 2).

        If the kernel is positive definite, they hold with certainty, by the energy account and Weyl's inequality, up to
        rounding: 1e-9 of the mean of k(x, x), and more if atoms nearly depend on each other. Every swap of atoms widens
        them.

        Examples
        --------
        >>> from streamkpca import StreamingKernelPCA
        >>> X = [[-2.0, 0.0], [2.0, 0.0], [0.0, -1.0], [0.0, 1.0]]
        >>> StreamingKernelPCA(1, kernel="linear", max_atoms=1, noise_variance=None).fit(X).eigenvalue_bounds_.round(3)
        array([[2.667, 3.333]])
        """
        return self._fitted("eigenvalue_bounds_").eigenvalue_bounds

    @property
    def unexplained_energy_ratio_(self) -> float:
        """Share of the stream's energy that is not recorded in the basis."""
        return self._fitted("unexplained_energy_ratio_").unexplained_energy_ratio
