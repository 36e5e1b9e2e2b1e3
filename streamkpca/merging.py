"""One model of many."""

import copy

from streamkpca._blas import one_blas_thread
from streamkpca.streaming import StreamingKernelPCA


def merge(*models: StreamingKernelPCA) -> StreamingKernelPCA:
    """Merge models that have learned from different rows of one kind: shards of a stream, machines of a fleet.

    Parameters
    ----------
    *models : StreamingKernelPCA
        At least one; see `StreamingKernelPCA.merge`. They stay as they are.

    Returns
    -------
    StreamingKernelPCA
        A new model with the parameters of the first.

    Raises
    ------
    TypeError, ValueError
        There is none, one is given twice, or as `StreamingKernelPCA.merge`.

    Notes
    -----
    One after the other; axes are published once, at the end. With a budget the order matters within the bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import StreamingKernelPCA, kernels, merge
    >>> rows = np.random.default_rng(0).normal(size=(3000, 2))
    >>> shards = [StreamingKernelPCA(2, kernel=kernels.RBF(0.5)).partial_fit(part) for part in np.split(rows, 3)]
    >>> whole = merge(*shards)
    >>> whole.n_samples_seen_, whole.total_weight_
    (3000, 3000.0)
    """
    where = "merge"
    if not models:
        raise TypeError(f"{where} expects at least one StreamingKernelPCA but got none")
    first = models[0]
    if not isinstance(first, StreamingKernelPCA):
        raise TypeError(f"{where} expects StreamingKernelPCA models but got {type(first).__name__}; {_remedy(first)}")
    if len({id(model) for model in models}) < len(models):
        raise ValueError(f"{where}: a model is given twice: its rows would count twice; give each model once")
    merged = copy.deepcopy(first)
    stream, settings = merged._merged_with(models[1:], where)
    if stream is not None:
        with one_blas_thread():
            stream.publish_now(settings)
        merged._stream = stream
    return merged


def _remedy(what: object) -> str:
    return "pass them one by one: merge(*models)" if isinstance(what, list | tuple) else "fit one to the rows"
