"""Kernel PCA in the span of a few rows, chosen greedily from all, and moved from there."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca._core.linalg import one_blas_thread
from streamkpca._core.parameters import check_choice, check_integer
from streamkpca.components.refit import Candidates, RefitSettings, refit
from streamkpca.components.snapshot import spread_out
from streamkpca.dictionary.basis import Basis
from streamkpca.dictionary.greedy import Criterion, pursue
from streamkpca.dictionary.moments import Moments
from streamkpca.dictionary.moving import move_basis
from streamkpca.errors import name_errors, require
from streamkpca.kernels import Kernel
from streamkpca.models._base import SAMPLE, Estimator, check_batch
from streamkpca.models._protocol import explain_unknown_arguments
from streamkpca.stream.parameters import check_parameters

# Rows projected onto the basis at a time.
_CHUNK = 512

# Rows that decide where atoms move, for each atom: more of them changed the energy left unexplained by less than 1%.
_ROWS_PER_ATOM = 50
# Least rows that decide where atoms move.
_LEAST_ROWS = 10240
# Evaluations of a descent.
_N_EVALUATIONS = 30


@name_errors
@explain_unknown_arguments
@dataclass(eq=False, repr=False)
class ApproximateKernelPCA(Estimator):
    """Kernel PCA in the span of a few atoms: rows chosen greedily by the energy that they capture (APCA, AKPCA).

    Parameters
    ----------
    n_components : int or float, default=10
        Number q of axes. A float between 0 and 1: the fewest axes that explain this share of the variance.
    max_atoms : int, default=100
        Maximum number of rows to choose.
    atoms : {"moved", "rows"}, default="moved"
        "moved": the chosen rows move along the gradient to where they leave less unexplained [2]_. "rows": they stay
        rows of X, as they do with functions of the caller and kernels that are not positive definite.
    kernel : Kernel or str, default="rbf"
        A kernel of `streamkpca.kernels`, or the name of one with its default parameters. Linear gives APCA.
    criterion : {"residual", "original"}, default="residual"
        The next row has the largest sum of squared residual inner products with all rows, divided by the squared length
        of its own residual (the energy that it truly captures), or by that of the row itself, as in [1]_.
    n_candidates : int or None, default=1024
        Rows considered for each choice, drawn anew every ten atoms in proportion to their residuals. None: all rows, as
        in [1]_, in O(n^2) time per atom.
    tolerance : float, default=0.0
        Stop when this share of the energy, or less, is left unexplained.
    center : bool, default=True
        Subtract the mean in feature space.
    random_state : int, default=0
        Seed of the draws.

    See Also
    --------
    StreamingKernelPCA : The same criterion on a stream, in one pass.

    Notes
    -----
    With s candidates, time is O(n s (d + m / 10) m), linear in rows and quadratic in atoms, and memory O(n (s + m)).

    References
    ----------
    .. [1] S. Martin, "An approximate version of kernel PCA", ICMLA 2006. There the directions are used directly; here
       the principal axes are found in their span.
    .. [2] E. Snelson, Z. Ghahramani, "Sparse Gaussian processes using pseudo-inputs", NIPS 18, 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import ApproximateKernelPCA
    >>> X = np.random.default_rng(0).normal(size=(500, 3)) * [10.0, 1.0, 0.1]
    >>> model = ApproximateKernelPCA(2, max_atoms=3, kernel="linear").fit(X)
    >>> model.n_atoms_, bool(model.unexplained_energy_ratio_ < 1e-9), model.singular_values_.round()
    (3, True, array([221.,  21.,   2.]))
    """

    n_components: int | float = 10
    _: KW_ONLY
    max_atoms: int = 100
    atoms: Literal["moved", "rows"] = "moved"
    kernel: Kernel | str = "rbf"
    criterion: Criterion = "residual"
    n_candidates: int | None = 1024
    tolerance: float = 0.0
    center: bool = True
    random_state: int = 0

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Choose rows and find the axes in their span.

        Parameters
        ----------
        X, y, sample_weight
            As for `KernelPCA.fit`.

        Raises
        ------
        TypeError, ValueError
            X or the weights are not finite real arrays, or a parameter is invalid. The model is as before the call.
        """
        del y
        checked = check_parameters(
            n_components=self.n_components, center=self.center, atoms=self.atoms, tolerance=self.tolerance
        )
        settings = RefitSettings(checked["n_components"], checked["center"])
        max_atoms = check_integer("max_atoms", self.max_atoms, least=1)
        check_choice("criterion", self.criterion, choices=("residual", "original"))
        n_candidates = self.n_candidates
        if n_candidates is not None:
            n_candidates = check_integer("n_candidates", n_candidates, least=1)
        random = np.random.default_rng(check_integer("random_state", self.random_state, least=0, most=None))
        kernel, rows, weights, names = check_batch(self.kernel, X, sample_weight)

        pursuit = pursue(
            kernel,
            rows,
            weights,
            max_atoms,
            self.criterion,
            tolerance=checked["tolerance"],
            n_candidates=n_candidates,
            random=random,
        )
        basis, chosen_rows = Basis.empty(kernel, rows.shape[1]), []
        # One by one, so that each is tested against the rounding errors in the span of those before it.
        for row in pursuit.atoms:
            basis, accepted = basis.extend(rows[[row]])
            chosen_rows += [row] * len(accepted)
        chosen = np.array(chosen_rows, dtype=np.int64)
        if self.atoms == "moved" and kernel.is_positive_definite:
            drawn: Any = slice(None)
            if len(rows) > (most := max(_ROWS_PER_ATOM * basis.size, _LEAST_ROWS)):
                drawn = np.sort(random.choice(len(rows), most, replace=False))
            with one_blas_thread():
                basis, kept, has_moved = move_basis(basis, rows[drawn], weights[drawn], n_evaluations=_N_EVALUATIONS)
            chosen = np.where(has_moved, ~chosen[kept], chosen[kept])
        moments = Moments.zero(basis.size)
        for start in range(0, len(rows), _CHUNK):
            block = basis.project(rows[start : start + _CHUNK])
            basis.warn_if_indefinite(block)
            moments = moments.add(block.coordinates, block.energy, weights[start : start + _CHUNK])
        candidates = Candidates(basis.atoms, chosen, basis.factor, are_atoms=True)
        snapshot = refit(kernel, candidates, moments, settings, spread_out(rows, SAMPLE))
        singular_values = np.sqrt(np.maximum(np.diagonal(moments.second), 0.0))
        return self._publish(snapshot, names, singular_values)

    @property
    def singular_values_(self) -> Array:
        """Square root of the energy along the direction that each chosen row added; shape (m,)."""
        return require(self._published, type(self).__name__, "singular_values_").singular_values.copy()
