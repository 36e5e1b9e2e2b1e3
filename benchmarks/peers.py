"""Detectors of other libraries, and of textbooks, that score rows without labels."""

from collections.abc import Callable

import numpy as np
from common import Array, is_installed

# Rows to learn become their scores, and a function that scores others.
Peer = Callable[[Array], tuple[Array, Callable[[Array], Array]]]


def find_neighbour(k: int) -> Peer:
    """Return a peer that scores by the distance to the k-th nearest row of train, other than the row itself."""

    def find(train: Array) -> tuple[Array, Callable[[Array], Array]]:
        from sklearn.neighbors import NearestNeighbors

        model = NearestNeighbors(n_neighbors=min(k, len(train) - 1)).fit(train)
        return model.kneighbors()[0][:, -1], lambda rows: model.kneighbors(rows)[0][:, -1]

    return find


def count_columns(name: str) -> Peer:
    """Return one of pyod's peers that score columns one by one: ECOD, by their tails, or HBOS, by their histograms."""

    def count(train: Array) -> tuple[Array, Callable[[Array], Array]]:
        from importlib import import_module

        model = getattr(import_module(f"pyod.models.{name.lower()}"), name)().fit(train)
        return model.decision_scores_, model.decision_function

    return count


def compare_density(train: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Score by scikit-learn's local outlier factor."""
    from sklearn.neighbors import LocalOutlierFactor

    model = LocalOutlierFactor(n_neighbors=min(20, len(train) - 1), novelty=True).fit(train)
    return -model.negative_outlier_factor_, lambda rows: -model.score_samples(rows)


def reconstruct(train: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Score by pyod's kernel PCA of 1,000 rows, evenly spaced."""
    from pyod.models.kpca import KPCA

    few = train[np.linspace(0, len(train) - 1, min(len(train), 1000)).astype(int)]
    model = KPCA(random_state=0).fit(few)
    return model.decision_function(train), model.decision_function


def measure_mahalanobis(train: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Score by the squared Mahalanobis distance to the mean."""
    mean, inverse = train.mean(axis=0), np.linalg.pinv(np.atleast_2d(np.cov(train.T)), hermitian=True)

    def score(rows: Array) -> Array:
        centred = rows - mean
        return np.einsum("ij,jk,ik->i", centred, inverse, centred)

    return score(train), score


def isolate(train: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Score by scikit-learn's isolation forest."""
    from sklearn.ensemble import IsolationForest

    model = IsolationForest(random_state=0).fit(train)
    return -model.score_samples(train), lambda rows: -model.score_samples(rows)


def grow_half_space_trees(train: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Score a row by River's trees, and then learn it."""
    from river import anomaly, compose, preprocessing

    model = compose.Pipeline(preprocessing.MinMaxScaler(), anomaly.HalfSpaceTrees(seed=0))
    names = [str(column) for column in range(train.shape[1])]

    def score(rows: Array) -> Array:
        scores = np.empty(len(rows))
        for i, row in enumerate(rows.tolist()):
            features = dict(zip(names, row, strict=True))
            scores[i] = model.score_one(features)
            model.learn_one(features)
        return scores

    return score(train), score


_ALL: dict[str, tuple[str, Peer]] = {
    "5th neighbour": ("sklearn", find_neighbour(5)),
    "50th neighbour": ("sklearn", find_neighbour(50)),
    "ECOD": ("pyod", count_columns("ECOD")),
    "HBOS": ("pyod", count_columns("HBOS")),
    "LOF": ("sklearn", compare_density),
    "pyod KPCA": ("pyod", reconstruct),
    "Mahalanobis": ("numpy", measure_mahalanobis),
    "isolation forest": ("sklearn", isolate),
    "half-space trees": ("river", grow_half_space_trees),
}


def choose_peers(*names: str) -> dict[str, Peer]:
    """Return those of the named peers whose library is installed."""
    return {name: _ALL[name][1] for name in names if is_installed(_ALL[name][0])}
