"""Digits as a stream
==================

Handwritten digits arrive 50 at a time, and a stream keeps 200 of them. Its axes are nearly those of kernel PCA of all
1,797 digits at once.

It needs the extras ``plots`` and ``sklearn``.
"""

import numpy as np
from scipy.linalg import subspace_angles
from sklearn.datasets import load_digits
from sklearn.decomposition import KernelPCA as PeerKernelPCA

from streamkpca import KernelPCA, StreamingKernelPCA, plots
from streamkpca.kernels import RBF

# %%
# The rows
# --------
#
# scikit-learn's digits have 8 x 8 pixels. The width of the kernel is settled on all of them, so that all models have
# the same; a stream alone would settle it on its first rows.

rows, digits = load_digits(return_X_y=True)
kernel = RBF(1.0 / (rows.shape[1] * rows.var()))

# %%
# The models
# ----------
#
# `refit` computes the axes anew, with the last rows. Exact kernel PCA is here twice: ours and scikit-learn's.

stream = StreamingKernelPCA(10, kernel=kernel, max_atoms=200, block_size=256)
for chunk in np.array_split(rows, 36):
    stream.partial_fit(chunk)
stream.refit()

exact = KernelPCA(10, kernel=kernel).fit(rows)
peer = PeerKernelPCA(10, kernel="rbf", gamma=kernel.gamma, eigen_solver="dense").fit(rows)

# %%
# How far they agree
# ------------------
#
# Eigenvalues are variances of the projections; scikit-learn's become so when they are divided by the number of rows.
# The smallest cosine between two sets of axes is 1 if they span the same space.

ours, theirs = stream.transform(rows), exact.transform(rows)
print("component    stream     exact  scikit-learn")
for i in range(10):
    print(f"{i:>9} {stream.eigenvalues_[i]:>9.5f} {exact.eigenvalues_[i]:>9.5f} {peer.eigenvalues_[i] / 1796:>13.5f}")
captured = ours.var(axis=0).sum() / theirs.var(axis=0).sum()
cosine = np.cos(subspace_angles(ours - ours.mean(axis=0), theirs).max())
print(f"variance on the axes, of that on the exact: {captured:.1%}")
print(f"smallest cosine of the axes with the exact: {cosine:.3f}")

# %%
# The picture
# -----------
#
# An axis may point either way; ours are turned like the exact ones.

figure = plots.make_figure(width=14, height=4.6)
left, middle, right = figure.subplots(1, 3)
for axes, projections in ((left, ours * np.sign((ours * theirs).sum(axis=0))), (middle, theirs)):
    dots = axes.scatter(*projections[:, :2].T, s=4, c=digits, cmap="tab10", linewidths=0)
    axes.legend(*dots.legend_elements(), fontsize="x-small", ncols=2)
left.set_title(f"streaming, from {stream.n_active_} digits")
middle.set_title(f"exact, from all {len(rows):,} digits")
right.bar(np.arange(10) - 0.2, stream.eigenvalues_, width=0.4, label="streaming")
right.bar(np.arange(10) + 0.2, exact.eigenvalues_, width=0.4, label="exact")
right.set(title="spectrum", xlabel="component", ylabel="variance", xticks=range(10))
right.legend()
figure.savefig("digits_stream.png", dpi=130)
