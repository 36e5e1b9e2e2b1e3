"""Kernel PCA as a transformer of River's."""

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


class KernelPCATransformer(Learner, base.MiniBatchTransformer):
    """Kernel PCA as a transformer: features in, coordinates along the principal axes out.

    Parameters
    ----------
    n_components : int or float
        Number q of axes; a float between 0 and 1: the fewest that explain this share of the variance.
    kernel : Kernel or str
        A kernel of `streamkpca.kernels`, or the name of one. Scale features before: `preprocessing.StandardScaler`.
    max_atoms : int or None
        Budget of rows that are kept as basis.
    tolerance : float
        Share of the energy sum k(x, x) that may stay outside of their span.
    noise_variance : float, "auto" or None
        The larger, the fewer atoms make the axes; None for all.
    n_active : int or None
        Look for the noise variance that leaves so many, instead.
    axes : {"ritz", "likelihood"}
        The best axes in the span of these atoms, or those of the likelihood's own model.
    center : bool
        Subtract the mean in feature space.
    half_life : float or None
        Rows after which a row counts half; None for never.
    block_size : int
        Rows that are worked off together.
    refit_every : int or "auto"
        Rows between refits of the axes.
    reservoir_size : int
        Rows of the random sample that certificates read.
    on_bad_rows : {"raise", "skip"}
        What to do about rows with NaN or infinity when learning.
    seed : int or None
        Of that sample; nothing else is random.
    dtype : {"float64", "float32"}
        What rows are kept in; "float32" halves the memory.

    Notes
    -----
    The first row decides which features there are, and their order is that of their names: what a kernel's ``.on``
    counts. Features that appear later are ignored; one that is missing counts as 0, its mean behind a StandardScaler.

    A component is named by its number, from 0. Before anything was learned there are none, and rows become ``{}``.
    Axes change when they are refitted, `refit_every` rows apart; while the stream is young, after every growth by a
    quarter. Signs are kept.

    River's ``mutate`` changes parameters while the stream goes on, all but `kernel`, `block_size`, `reservoir_size`,
    `seed` and `dtype`; what concerns the axes shows at the next refit.

    See Also
    --------
    streamkpca.StreamingKernelPCA : The model behind it, with more on the parameters.

    Examples
    --------
    >>> from river import datasets, preprocessing
    >>> from streamkpca.adapters.for_river import KernelPCATransformer
    >>> model = preprocessing.StandardScaler() | KernelPCATransformer(n_components=2, max_atoms=32)
    >>> for x, _ in datasets.Phishing().take(300):
    ...     model.learn_one(x)
    >>> sorted(model.transform_one(x))
    [0, 1]
    """

    def __init__(
        self,
        n_components: int | float = 10,
        *,
        kernel: Kernel | str = "rbf",
        max_atoms: int | None = 256,
        tolerance: float = 1e-3,
        noise_variance: float | Literal["auto"] | None = "auto",
        n_active: int | None = None,
        axes: Literal["ritz", "likelihood"] = "ritz",
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
        self.noise_variance = noise_variance
        self.n_active = n_active
        self.axes = axes
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
                n_components,
                kernel=kernel,
                max_atoms=max_atoms,
                tolerance=tolerance,
                noise_variance=noise_variance,
                n_active=n_active,
                axes=axes,
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

    def transform_one(self, x: Mapping[Any, Any]) -> dict[Any, Any]:
        """Project a row.

        Parameters
        ----------
        x : dict
            Numbers by feature.

        Returns
        -------
        dict
            Coordinates by component, 0 to q - 1; empty before anything was learned.

        Raises
        ------
        TypeError, ValueError
            A feature is no finite number.

        Examples
        --------
        >>> from streamkpca.adapters.for_river import KernelPCATransformer
        >>> model = KernelPCATransformer(1, kernel="linear", center=False)
        >>> for i in range(5):
        ...     model.learn_one({"load": 3.0 * i, "heat": 4.0 * i})
        >>> {name: round(value, 3) for name, value in model.transform_one({"load": 3.0, "heat": 4.0}).items()}
        {0: 5.0}
        """
        if not self._features:
            return {}
        return dict(enumerate(self._model.transform(self._row(x, self._features, "transform_one"))[0].tolist()))

    def transform_many(self, X: Any) -> Any:
        """Project a mini-batch.

        Parameters
        ----------
        X : DataFrame
            A column is a feature.

        Returns
        -------
        DataFrame
            Of the same library, with the same index: a column is a component. It has none before anything was learned.

        Raises
        ------
        TypeError, ValueError
            A feature is no finite number.

        Examples
        --------
        >>> import pandas as pd
        >>> from streamkpca.adapters.for_river import KernelPCATransformer
        >>> rows = pd.DataFrame({"load": [3.0, 6.0, 9.0], "heat": [4.0, 8.0, 12.0]})
        >>> model = KernelPCATransformer(1, kernel="linear", center=False)
        >>> model.learn_many(rows)
        >>> model.transform_many(rows).round(3)
              0
        0   5.0
        1  10.0
        2  15.0
        """
        frame = dataframe.into_frame(X)
        if not self._features:
            # Of a pandas DataFrame the index stays; narwhals would drop it with the last column.
            return X[[]] if frame.implementation.is_pandas_like() else frame[:, []].to_native()
        if not len(frame):
            projections = np.empty((0, len(self._model.eigenvalues_)))
        else:
            projections = self._model.transform(self._rows(frame, self._features, "transform_many"))
        # By column: libraries whose columns are named by text alone get "0", "1" and so on.
        return dataframe.to_native_frame(dict(enumerate(projections.T)), like=frame)

    @property
    def _mutable_attributes(self) -> set[str]:
        """Axes change with them when they are refitted."""
        return super()._mutable_attributes | {"n_components", "noise_variance", "n_active", "axes"}

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"n_components": 3, "max_atoms": 32, "block_size": 64}
