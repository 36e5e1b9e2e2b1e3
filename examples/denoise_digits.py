"""Take the noise out of digits
============================

A model learns digits without noise. Noisy ones are projected, and `inverse_transform` finds rows with these
projections: rows near those that the model knows.

PCA projects noise as it projects digits: with few axes it loses strokes, with many it keeps the noise, and the best
number cannot be known without the clean digits. Kernel PCA takes no harm from more axes, and with enough of them
recovers more than PCA at its best.

It needs the extras ``plots`` and ``sklearn``.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.decomposition import KernelPCA as PeerKernelPCA

from streamkpca import StreamingKernelPCA, plots
from streamkpca.kernels import RBF

# %%
# The rows
# --------
#
# scikit-learn's digits of 8 x 8 pixels, which go to 16. The models learn 1,300 of the 1,797; the others get noise.

rows, digits = load_digits(return_X_y=True)
train, clean = rows[:1300], rows[1300:]
noisy = clean + np.random.default_rng(0).normal(scale=4, size=clean.shape)

# %%
# The models
# ----------
#
# Noise doubles the distances between digits, so the kernel is wider than it would be by default. scikit-learn's kernel
# PCA finds rows by a regression with a penalty `alpha`; it gets the best of five, which cannot be known either.

AXES = [5, 10, 15, 25, 40, 64]
kernel = RBF(1.0 / (train.shape[1] * train.var()))


def share(found):
    """Return the share of the variance of the clean digits that is recovered."""
    return 1 - ((clean - found) ** 2).sum() / ((clean - clean.mean(axis=0)) ** 2).sum()


def denoised(model):
    """Project the noisy digits, and go back."""
    return model.inverse_transform(model.transform(noisy))


def peer(n_axes, alpha):
    """Make scikit-learn's kernel PCA."""
    return PeerKernelPCA(n_axes, kernel="rbf", gamma=kernel.gamma, fit_inverse_transform=True, alpha=alpha).fit(train)


found = {
    "streaming": [denoised(StreamingKernelPCA(n, kernel=kernel).partial_fit(train).refit()) for n in AXES],
    "PCA": [denoised(PCA(n).fit(train)) for n in AXES],
    "scikit-learn": [max((denoised(peer(n, 10.0**-i)) for i in range(5)), key=share) for n in AXES],
}
shares = {name: [share(each) for each in values] for name, values in found.items()}

print(f"{'axes':>12}" + "".join(f"{n:>7}" for n in AXES))
for name, values in shares.items():
    print(f"{name:>12}" + "".join(f"{value:>7.3f}" for value in values))
print(f"{'noisy':>12}{share(noisy):>7.3f}")

# %%
# The picture
# -----------
#
# Below, PCA's digits look sharper, because noise adds contrast, and are farther from the clean ones.

best = int(np.argmax(shares["PCA"]))
shown = {
    "clean": clean,
    "noisy": noisy,
    f"streaming, {AXES[-1]} axes": found["streaming"][-1],
    f"PCA, {AXES[best]} axes": found["PCA"][best],
}
figure = plots.make_figure(width=10, height=6.6)
upper, lower = figure.subfigures(2, 1, height_ratios=[3.0, 3.6])
panel = upper.add_subplot()
for (name, values), style in zip(shares.items(), ("o-", "s-", "^--")):
    panel.plot(AXES, values, style, label=name)
panel.axhline(share(noisy), color="#555555", linestyle=":", label="noisy digits as they are")
panel.set(title="variance of the digits that is recovered", xlabel="number of axes", ylabel="share", ylim=(0, 0.8))
panel.legend(loc=(0.02, 0.25), ncols=2)
first_of_each = [np.flatnonzero(digits[1300:] == digit)[0] for digit in range(10)]
for line, (name, images) in zip(lower.subplots(len(shown), 10), shown.items()):
    line[0].set_ylabel(name, rotation=0, ha="right", va="center")
    for axes, image in zip(line, images[first_of_each]):
        axes.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
        axes.set(xticks=[], yticks=[])
figure.savefig("denoise_digits.png", dpi=110)
