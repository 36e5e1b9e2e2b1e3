"""The likelihood of M. E. Tipping's "Sparse kernel principal component analysis" (NIPS 13, 2001) by dense matrices.

Slow and obvious, without one line of the package: what its weights are compared with.
"""

import numpy as np


def covariance_of(weights, features, noise):
    """sigma^2 I + Phi^T W Phi, eq. (5), in coordinates of a basis."""
    return noise * np.eye(features.shape[1]) + features.T @ np.diag(weights) @ features


def mean_log_likelihood(weights, features, second_moment, noise):
    """-1/2 (r log 2 pi + log|C| + tr(C^-1 S)), eqs. (5) to (8) divided by the number of rows."""
    covariance = covariance_of(weights, features, noise)
    constant = len(covariance) * np.log(2.0 * np.pi)
    trace = np.trace(np.linalg.solve(covariance, second_moment))
    return float(-0.5 * (constant + np.linalg.slogdet(covariance)[1] + trace))


def scatter_matrices(weights, features, second_moment, noise):
    """Compute A = Phi C^-1 Phi^T and Q = Phi C^-1 S C^-1 Phi^T."""
    inverse = np.linalg.inv(covariance_of(weights, features, noise))
    return features @ inverse @ features.T, features @ inverse @ second_moment @ inverse @ features.T


def log_likelihood_gradient(weights, features, second_moment, noise):
    """(phi_i^T C^-1 S C^-1 phi_i - phi_i^T C^-1 phi_i) / 2, whose zeros the rules (13) and (14) look for."""
    A, Q = scatter_matrices(weights, features, second_moment, noise)
    return 0.5 * (Q.diagonal() - A.diagonal())


def posterior_moments(weights, features, second_moment, noise):
    """Variances of the coefficients given a row, eq. (11), and mean squares of their means, eq. (12)."""
    sigma = np.linalg.inv(np.diag(1.0 / weights) + features @ features.T / noise)
    means = sigma @ features @ second_moment @ features.T @ sigma / noise**2
    return sigma.diagonal(), means.diagonal()
