"""Sparse kernel PCA of all rows at once, by maximum likelihood."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.arrays import Array
from streamkpca._core.parameters import check_choice
from streamkpca.components.refit import Candidates, RefitSettings, refit
from streamkpca.components.snapshot import spread_out
from streamkpca.components.weights import OPTIMISERS, Optimizer
from streamkpca.dictionary.basis import Basis
from streamkpca.dictionary.moments import Moments
from streamkpca.dictionary.selection import choose_rows
from streamkpca.errors import name_errors
from streamkpca.kernels import Kernel
from streamkpca.models._base import SAMPLE, Estimator, check_batch
from streamkpca.models._protocol import explain_unknown_arguments
from streamkpca.stream.parameters import check_parameters

Positions = npt.NDArray[np.intp]

# Rows added to the basis at a time.
_CHUNK = 512


@name_errors
@explain_unknown_arguments
@dataclass(eq=False, repr=False)
class SparseKernelPCA(Estimator):
    """Sparse kernel PCA by maximum likelihood: every distinct row is a candidate, few get a weight.

    Parameters
    ----------
    n_components : int or float, default=10
        Number q of axes. A float between 0 and 1: the fewest axes that explain this share of the variance.
    kernel : Kernel or str, default="rbf"
        A kernel of `streamkpca.kernels`, or the name of one with its default parameters.
    noise_variance : float, "auto" or None, default="auto"
        Noise variance sigma^2, in units of k(x, x): the larger, the fewer rows stay active. "auto" keeps the fewest
        rows that hold at least 99% of the variance on the q axes of all rows (99.67% of the rows of X, as a margin for
        others). None: all rows are active.
    n_active : int or None, default=None
        Search for the noise variance that leaves this many rows active, instead.
    axes : {"ritz", "likelihood"}, default="ritz"
        "ritz": the best axes in the span of the active rows. "likelihood": those of the likelihood's own model.
    center : bool, default=True
        Subtract the mean in feature space.
    optimizer : {"coordinate", "fixed_point", "em"}, default="coordinate"
        The method of every fit of weights; see Notes.

    See Also
    --------
    StreamingKernelPCA : The same on a stream.

    Notes
    -----
    O(n^3): the likelihood is evaluated in an orthonormal basis of the rows' span. Projecting a row costs O(k (d + q))
    for k active rows.

    The optimizers climb the same likelihood and never step down, but may end at different maxima of it:

    * "coordinate", ours: changes one weight at a time, always the one that gains most, to its exact maximiser, then all
      weights that are not zero by Newton's method. O(n^3) once and O(n k^2 + k^3) for each of ten to twenty rounds. The
      fastest, and usually the most likely. It stops when no single weight could gain 1e-10.
    * "fixed_point", eq. (14) of [1]_: multiplies all weights at once and drops those that vanish, with a step of "em"
      where it would lose. O(n^3) for each of hundreds to thousands of rounds; leaves a few more rows active.
    * "em", eq. (13) of [1]_: thousands of rounds of O(n^3), which end a little below the others with still more rows
      active. Both stop when a round raises the mean log-likelihood by less than 1e-8 of it.

    An optimizer that uses up its rounds keeps the weights found so far and issues a `SparsityWarning`.

    References
    ----------
    .. [1] M. E. Tipping, "Sparse kernel principal component analysis", NIPS 13, 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import SparseKernelPCA, kernels
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> model = SparseKernelPCA(n_components=2, kernel=kernels.RBF(gamma=0.1)).fit(X)
    >>> model.n_atoms_, model.n_active_ < 20
    (100, True)
    """

    n_components: int | float = 10
    _: KW_ONLY
    kernel: Kernel | str = "rbf"
    noise_variance: float | Literal["auto"] | None = "auto"
    n_active: int | None = None
    axes: Literal["ritz", "likelihood"] = "ritz"
    center: bool = True
    optimizer: Optimizer = "coordinate"

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Find weights and axes of rows.

        Parameters
        ----------
        X, y, sample_weight
            As for `KernelPCA.fit`; rows of weight 0 are left out.

        Raises
        ------
        SparsityError, TypeError, ValueError
            The noise variance leaves no row active, `n_active` exceeds the number of distinct rows, X or the weights
            are not finite real arrays, or a parameter is invalid. The model is as before the call.
        """
        del y
        given = {name: getattr(self, name) for name in ("n_components", "center", "noise_variance", "n_active", "axes")}
        check_choice("optimizer", self.optimizer, choices=OPTIMISERS)
        settings = RefitSettings(**check_parameters(**given), optimizer=self.optimizer).consistent()
        kernel, rows, weights, names = check_batch(self.kernel, X, sample_weight)
        counting = np.flatnonzero(weights)
        # Equal rows would share a weight. Their coordinates tell them apart: products round by their place in a matrix.
        first, place = _distinct(rows[counting])
        rows = rows[counting[first]]
        # As a stream without tolerance does: all independent rows, the largest pivots of each chunk first.
        basis = Basis.empty(kernel, rows.shape[1])
        for start in range(0, len(rows), _CHUNK):
            chunk = rows[start : start + _CHUNK]
            independent = choose_rows(basis, basis.project(chunk), np.ones(len(chunk)), tolerated=0.0).admitted
            basis, _ = basis.extend(chunk[independent])
        block = basis.project(rows)
        basis.warn_if_indefinite(block)
        moments = Moments.zero(basis.size).add(block.coordinates[place], block.energy[place], weights[counting])
        candidates = Candidates(rows, counting[first], block.coordinates, are_atoms=False)
        return self._publish(refit(kernel, candidates, moments, settings, spread_out(rows, SAMPLE)), names)


def _distinct(rows: Array) -> tuple[Positions, Positions]:
    """Return the positions of rows that equal no earlier one, and for every row where its equal stands among them."""
    first, equal = np.unique(rows, axis=0, return_index=True, return_inverse=True)[1:]
    order = np.argsort(first)
    # Some versions of numpy return positions in a column.
    return first[order], np.argsort(order)[equal.ravel()]
