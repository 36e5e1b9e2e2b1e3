"""Novelty by kernel PCA as an anomaly detector of River's."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np

from streamkpca.adapters.river_learner import Learner
from streamkpca.kernels import Kernel
from streamkpca.streaming import StreamingKernelPCA

try:
    from river import base
    from river.utils import dataframe
except ModuleNotFoundError as error:
    raise ImportError(f'streamkpca.adapters.for_river needs {error.name}; pip install "streamkpca[river]"') from error


class KernelPCADetector(Learner, base.AnomalyDetector):
    """Novelty by kernel PCA: how far a row is, in feature space, from what the stream has taught.

    Parameters
    ----------
    n_components : int or None
        None: measure to the span of all rows that are kept as basis. A number: to the centre and the first so many
        principal axes, which notices rows between the known ones too.
    kernel : Kernel or str
        A kernel of `streamkpca.kernels`, or the name of one. Scale features before: `preprocessing.StandardScaler`.
    max_atoms : int or None
        Budget of rows that are kept as basis.
    tolerance : float
        Share of the energy sum k(x, x) that may stay outside of their span.
    center : bool
        Subtract the mean in feature space; matters with `n_components` alone.
    half_life : float or None
        Rows after which a row counts half; None for never.
    block_size : int
        Rows that are worked off together.
    refit_every : int or "auto"
        Rows between the moments when what was learned begins to count for scores.
    reservoir_size : int
        Rows of the random sample that `kernel_pca.novelty_threshold` reads.
    on_bad_rows : {"raise", "skip"}
        What to do about rows with NaN or infinity when learning.
    seed : int or None
        Of that sample; nothing else is random.
    dtype : {"float64", "float32"}
        What rows are kept in; "float32" halves the memory.

    Notes
    -----
    Scores are squared distances in units of k(x, x): with an RBF kernel 0 for known rows, 1 for rows that resemble
    nothing. Before anything was learned they are 0.

    The first row decides which features there are, and their order is that of their names: what a kernel's ``.on``
    counts. Features that appear later are ignored; one that is missing counts as 0, its mean behind a StandardScaler.

    River's ``mutate`` changes `max_atoms`, `tolerance`, `center`, `half_life`, `refit_every` and `on_bad_rows` while
    the stream goes on.

    See Also
    --------
    streamkpca.StreamingKernelPCA : The model behind it, with more on the parameters.

    Examples
    --------
    A threshold comes from River's own filters, which also keep anomalies from being learned:

    >>> from river import anomaly, preprocessing
    >>> from streamkpca.adapters.for_river import KernelPCADetector
    >>> detector = anomaly.QuantileFilter(KernelPCADetector(max_atoms=32), q=0.99)
    >>> model = preprocessing.StandardScaler() | detector
    >>> for i in range(1000):
    ...     model.learn_one({"load": i % 7, "heat": 3.0 * (i % 7)})
    >>> detector.classify(model.score_one({"load": 5, "heat": 0.0}))
    True
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        kernel: Kernel | str = "rbf",
        max_atoms: int | None = 256,
        tolerance: float = 1e-3,
        center: bool = True,
        half_life: float | None = None,
        block_size: int = 512,
        refit_every: int | Literal["auto"] = "auto",
        reservoir_size: int = 512,
        on_bad_rows: Literal["raise", "skip"] = "raise",
        seed: int | None = 0,
        dtype: Literal["float64", "float32"] = "float64",
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.max_atoms = max_atoms
        self.tolerance = tolerance
        self.center = center
        self.half_life = half_life
        self.block_size = block_size
        self.refit_every = refit_every
        self.reservoir_size = reservoir_size
        self.on_bad_rows = on_bad_rows
        self.seed = seed
        self.dtype = dtype
        self._begin(
            StreamingKernelPCA(
                # Distances to the span of all atoms need no axes.
                1 if n_components is None else n_components,
                kernel=kernel,
                max_atoms=max_atoms,
                tolerance=tolerance,
                # Sparse weights make projections cheap; here all atoms are compared with anyway.
                noise_variance=None,
                center=center,
                half_life=half_life,
                block_size=block_size,
                refit_every=refit_every,
                reservoir_size=reservoir_size,
                on_bad_rows=on_bad_rows,
                random_state=seed,
                dtype=dtype,
            )
        )

    def score_one(self, x: Mapping[Any, Any]) -> float:
        """Score a row: the higher, the more anomalous.

        Parameters
        ----------
        x : dict
            Numbers by feature.

        Returns
        -------
        float
            Squared distance in feature space, in units of k(x, x); 0 before anything was learned.

        Raises
        ------
        TypeError, ValueError
            A feature is no finite number.

        Examples
        --------
        >>> from streamkpca.adapters.for_river import KernelPCADetector
        >>> from streamkpca.kernels import RBF
        >>> detector = KernelPCADetector(kernel=RBF(1.0))
        >>> for i in range(100):
        ...     detector.learn_one({"load": i % 7})
        >>> round(detector.score_one({"load": 3}), 3), round(detector.score_one({"load": 30}), 3)
        (0.0, 1.0)
        """
        if not self._features:
            return 0.0
        row = self._row(x, self._features, "score_one")
        return float(self._model.reconstruction_error(row, self.n_components)[0])

    def score_many(self, X: Any) -> Any:
        """Score a mini-batch.

        Parameters
        ----------
        X : DataFrame
            A column is a feature.

        Returns
        -------
        Series
            Of the same library, with the same index: what `score_one` says of each row.

        Raises
        ------
        TypeError, ValueError
            A feature is no finite number.

        Examples
        --------
        >>> import pandas as pd
        >>> from streamkpca.adapters.for_river import KernelPCADetector
        >>> from streamkpca.kernels import RBF
        >>> detector = KernelPCADetector(kernel=RBF(1.0))
        >>> detector.learn_many(pd.DataFrame({"load": range(7)}))
        >>> detector.score_many(pd.DataFrame({"load": [3, 30]}, index=["mon", "tue"])).round(3)
        mon    0.0
        tue    1.0
        Name: score, dtype: float64
        """
        frame = dataframe.into_frame(X)
        if self._features and len(frame):
            rows = self._rows(frame, self._features, "score_many")
            scores = self._model.reconstruction_error(rows, self.n_components)
        else:
            scores = np.zeros(len(frame))
        return dataframe.to_native_series(scores, name="score", like=frame)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"max_atoms": 32, "block_size": 64}
