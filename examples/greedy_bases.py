"""Greedy bases
============

Kernel PCA in the span of few rows, chosen one after another by the energy that they capture: it comes near the exact
axes, and random rows do not.

This repeats the experiments of S. Martin, "An approximate version of kernel PCA" (ICMLA 2006) on the two toy data sets
that B. Schölkopf, A. Smola and K.-R. Müller (Neural Computation 10, 1998) made for kernel PCA. Every row is a
candidate.

Where ours differs: the rows are drawn anew, because the source's are not published. Its criterion divides the energy
that a row's residual shares with all rows by the length of the row itself ("original"); divided by the length of the
residual ("residual") it is the energy that the row truly captures. The source uses the directions of the chosen rows
themselves; ours are the principal axes in their span.

It needs the extra ``plots``.
"""

import numpy as np
from scipy.linalg import subspace_angles

from streamkpca import ApproximateKernelPCA, KernelPCA, plots
from streamkpca.kernels import RBF, Polynomial

# %%
# The rows
# --------
#
# A noisy parabola, and three clusters. The polynomial's feature space has five dimensions: x^4, x^3 y and so on.

random = np.random.default_rng(0)
x = random.uniform(-1, 1, size=100)
parabola = np.column_stack([x, x**2 + random.normal(scale=0.2, size=100)])
centres = np.array([[-0.5, -0.2], [0.0, 0.6], [0.5, 0.0]])
clusters = (centres[:, None] + random.normal(scale=0.1, size=(3, 30, 2))).reshape(-1, 2)

# The rows, the kernel, a few rows to choose, and many.
experiments = {
    "parabola": (parabola, Polynomial(degree=4, gamma=1.0, coef0=0.0), 4, 5),
    "clusters": (clusters, RBF(1 / 0.1), 9, 30),
}

# %%
# The models
# ----------
#
# Martin's Gram-Schmidt tells the energy that is left after each chosen row.


def fit_greedy(rows, kernel, criterion, n):
    """Choose n rows."""
    chosen = ApproximateKernelPCA(4, max_atoms=n, atoms="rows", kernel=kernel, criterion=criterion, n_candidates=None)
    return chosen.fit(rows)


def energy_left(kernel, rows, chosen):
    """Return the share of the energy that is left after 0, 1, 2, ... chosen rows."""
    residual = kernel.matrix(rows, rows)
    energy = np.diagonal(residual).copy()
    shares = [1.0]
    for row in chosen:
        # A row that depends on those before it adds no direction.
        if residual[row, row] > 1e-12 * energy[row]:
            residual = residual - np.outer(residual[:, row], residual[row]) / residual[row, row]
        shares.append(max(np.trace(residual) / energy.sum(), 0.0))
    return np.array(shares)


# %%
# The result
# ----------
#
# For few rows, the smallest cosine of the first two axes with the exact ones. For more and more, the share of energy
# left unexplained, beside exact axes and the median of fifty random choices; on the right, the "singular values" of the
# chosen rows.

COLORS = {"exact": "black", "residual": "#0072B2", "original": "#D55E00", "random": "#999999"}
figure = plots.make_figure(width=11, height=7.6)
shares, cosines = {}, {}
for (left, right), (name, (rows, kernel, few, many)) in zip(figure.subplots(2, 2), experiments.items()):
    plane = KernelPCA(2, kernel=kernel).fit(rows).transform(rows)
    exact = KernelPCA(many, kernel=kernel, center=False).fit(rows)
    values = {"exact": np.sqrt(exact.eigenvalues_ * len(rows))}
    shares[name] = {"exact": np.maximum(1 - np.cumsum([0, *exact.explained_variance_ratio_]), 0)}
    for criterion in ("residual", "original"):
        ours = fit_greedy(rows, kernel, criterion, few).transform(rows)[:, :2]
        cosines[name, criterion] = np.cos(subspace_angles(ours, plane).max())
        print(f"{name}, {few} rows by {criterion}: smallest cosine with the exact {cosines[name, criterion]:.4f}")
        model = fit_greedy(rows, kernel, criterion, many)
        values[criterion] = model.singular_values_
        shares[name][criterion] = energy_left(kernel, rows, model.atom_rows_)
    draws = [energy_left(kernel, rows, random.permutation(len(rows))[:many]) for _ in range(50)]
    shares[name]["random"] = np.median(draws, axis=0)
    for which, color in COLORS.items():
        share = shares[name][which]
        print(f"{name}, energy left after {few} rows: {share[few]:.2%} {which}")
        left.plot(np.where(share > 1e-10, share, np.nan), ".-", color=color, label=which)
        if which in values:
            right.plot(range(1, many + 1), values[which], ".-", color=color, label=which)
    left.set(title=name, xlabel="rows chosen", ylabel="share of energy left unexplained", yscale="log")
    right.set(title=name, xlabel="row chosen", ylabel="singular value", yscale="log")
    left.legend()
    right.legend()
figure.savefig("greedy_bases.png", dpi=130)
