"""Detectors of other libraries, and of textbooks, that score rows without labels."""

from collections.abc import Callable, Iterable

import numpy as np

Array = np.ndarray
# A peer learns rows, and returns their scores and what scores others.
Peer = Callable[[Array], tuple[Array, Callable[[Array], Array]]]


def evenly(rows: Array, count: int) -> Array:
    """Return at most so many rows, evenly spaced."""
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), count)).astype(int)]


def fifth_neighbour(train: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Score by the distance to the 5th nearest row of train, other than the row itself."""
    from sklearn.neighbors import NearestNeighbors

    model = NearestNeighbors(n_neighbors=5).fit(train)
    return model.kneighbors()[0][:, -1], lambda rows: model.kneighbors(rows)[0][:, -1]


def local_outlier_factor(train: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Score by scikit-learn's local outlier factor."""
    from sklearn.neighbors import LocalOutlierFactor

    model = LocalOutlierFactor(n_neighbors=min(20, len(train) - 1), novelty=True).fit(train)
    return -model.negative_outlier_factor_, lambda rows: -model.score_samples(rows)


def pyods_kernel_pca(train: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Score by pyod's kernel PCA of some of the rows."""
    from pyod.models.kpca import KPCA

    model = KPCA(random_state=0).fit(evenly(train, 1000))
    return model.decision_function(train), model.decision_function


def mahalanobis(train: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Score by the squared Mahalanobis distance to the mean."""
    mean, covariance = train.mean(axis=0), np.atleast_2d(np.cov(train.T))
    covariance[np.diag_indices_from(covariance)] += 1e-6 * np.trace(covariance) / len(covariance)
    factor = np.linalg.inv(np.linalg.cholesky(covariance)).T

    def score(rows: Array) -> Array:
        return (((rows - mean) @ factor) ** 2).sum(axis=1)

    return score(train), score


def principal_axes(statistic: str) -> Peer:
    """Score by the squared distance to the axes that explain 90 % ("SPE"), or by T^2 on them."""

    def peer(train: Array) -> tuple[Array, Callable[[Array], Array]]:
        mean = train.mean(axis=0)
        _, singular, axes = np.linalg.svd(train - mean, full_matrices=False)
        share = np.cumsum(singular**2) / max((singular**2).sum(), 1e-300)
        count = int(np.searchsorted(share, 0.9)) + 1
        axes, variances = axes[:count], np.maximum(singular[:count] ** 2 / (len(train) - 1), 1e-300)

        def score(rows: Array) -> Array:
            centred = rows - mean
            coordinates = centred @ axes.T
            if statistic == "SPE":
                return ((centred - coordinates @ axes) ** 2).sum(axis=1)
            return (coordinates**2 / variances).sum(axis=1)

        return score(train), score

    return peer


def isolation_forest(train: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Score by scikit-learn's forest."""
    from sklearn.ensemble import IsolationForest

    model = IsolationForest(random_state=0).fit(train)
    return -model.score_samples(train), lambda rows: -model.score_samples(rows)


def half_space_trees(train: Array) -> tuple[Array, Callable[[Array], Array]]:
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


def one_class_svm(train: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Score by scikit-learn's one-class support vector machine of some of the rows."""
    from sklearn.svm import OneClassSVM

    model = OneClassSVM().fit(evenly(train, 5000))
    return -model.decision_function(train), lambda rows: -model.decision_function(rows)


PEERS: dict[str, tuple[str, Peer]] = {
    "5th neighbour": ("sklearn", fifth_neighbour),
    "LOF": ("sklearn", local_outlier_factor),
    "pyod's KPCA": ("pyod", pyods_kernel_pca),
    "Mahalanobis": ("numpy", mahalanobis),
    "PCA SPE": ("numpy", principal_axes("SPE")),
    "PCA T^2": ("numpy", principal_axes("T^2")),
    "IsolationForest": ("sklearn", isolation_forest),
    "half-space trees": ("river", half_space_trees),
    "one-class SVM": ("sklearn", one_class_svm),
}


def installed(names: Iterable[str]) -> set[str]:
    """Return the libraries that can be imported, and report the others."""
    found = set()
    for name in sorted(set(names)):
        try:
            __import__(name)
            found.add(name)
        except ImportError as error:
            print(f"left out: {error}")
    return found
