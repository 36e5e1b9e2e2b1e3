"""The novelty score: the reconstruction error on a scale that does not end where kernel values vanish."""

import sys

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca._core.linalg import solve_factor, squared_norms
from streamkpca.components._loops import score_errors
from streamkpca.kernels import Kernel
from streamkpca.kernels.logarithms import log_matrix
from streamkpca.kernels.program import PreparedKernel, explained_energies

# From this share of k(x, x) on that is explained, no kernel value that counts has underflowed.
_LEAST_SHARE = 1e-200
# From this explained energy on, no kernel value that counts has underflowed.
_LEAST_ENERGY = 1e-280


class NoveltyScore:
    """-e log(1 - r/e) for rows with the error r to the span of atoms, where e = k(x, x) is the same for all rows.

    Rows with other kernels score r itself. 1 - r/e is the explained share of the row's energy, |c|^2 / e with the
    coordinates c; where these underflow, it comes from logarithms of kernel values.
    """

    def __init__(self, kernel: Kernel, atoms: Array, factor: Array) -> None:
        self._program = kernel.program
        self._atoms = atoms
        # A copy, as loops would be compiled again for arrays that cannot be written to.
        self._factor = factor.copy()
        self._prepared = PreparedKernel(kernel.program, atoms) if kernel.is_compiled else None
        self._own = self._least = 0.0
        if kernel.is_stationary and len(atoms):
            self._own = float(self._program.diagonal(np.zeros((1, atoms.shape[1])))[0])
            self._least = max(_LEAST_SHARE * self._own, _LEAST_ENERGY)

    def of_rows(self, rows: Array) -> Array:
        """Score rows (n, d): (n,), O(m (d + m)) a row."""
        explained = squared_norms(solve_factor(self._factor, self._program.matrix(rows, self._atoms)))
        return self.of_errors(rows, self._program.diagonal(rows) - explained, explained)

    def measure(self, rows: Array) -> tuple[Array, Array] | None:
        """Return errors and explained energies (n,) of rows (n, d); no bit depends on the rows beside.

        None where the kernel calls functions of the caller, or an error is not finite.
        """
        return None if self._prepared is None else self._prepared.measure(rows, self._factor)

    def of_errors(self, rows: Array, errors: Array, explained: Array) -> Array:
        """Score rows (n, d) whose errors and explained energies (n,) are known."""
        if self._own == 0.0:
            return np.maximum(errors, 0.0)
        scores = np.empty(len(rows))
        if score_errors(errors, explained, self._own, self._least, scores):
            hidden = np.flatnonzero(scores < 0.0)
            scores[hidden] = self._of_logarithms(rows[hidden])
        return scores

    def _of_logarithms(self, rows: Array) -> Array:
        """Score rows far away (n, d); what exceeds the largest float, or rows whose distances do, get that float."""
        # Only kernels without functions of the caller are known to be stationary.
        assert self._prepared is not None
        values = log_matrix(self._program, self._prepared.base_values(rows))
        largest = values.max(axis=1)
        with np.errstate(all="ignore"):
            # As shares of the largest of each row.
            np.exp(values - largest[:, None], out=values)
            values[np.isneginf(largest)] = 1.0
            shares = explained_energies(self._factor, values) * self._own
            scores = -self._own * (2.0 * (largest - np.log(self._own)) + np.log(shares))
        finite: Array = np.minimum(scores, sys.float_info.max)
        return finite
