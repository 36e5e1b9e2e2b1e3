"""Take the noise out of digits
============================

Models learn 1,300 of scikit-learn's digits of 8 x 8 pixels without noise. The other 497 get Gaussian noise and are
projected, and `inverse_transform` finds rows with these projections. The figure is the share of the digits' variance
that is recovered, by the number of axes.

PCA projects noise as it projects digits: with few axes it loses strokes, with many it keeps the noise. So it is best
at some number of axes that depends on the noise and cannot be known without the clean digits. Beyond that its digits
look sharper, because noise adds contrast, and are farther from the clean ones. Kernel PCA makes rows near those that it
has learned, so more axes do no harm, and with enough of them it recovers more than PCA does with its best number. With
much more noise (``--noise 8``) rows are so far from all digits that neither method is of use.

The streaming model is compared with PCA and with scikit-learn's kernel PCA of the same kernel, whose penalty `alpha` is
the best of five; that cannot be known beforehand either. The script prints a table and saves a picture.

Run it in any folder (needs the extras ``plots`` and ``sklearn``)::

    python denoise_digits.py
    python denoise_digits.py --noise 6 --out pictures
"""

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

from streamkpca import StreamingKernelPCA, plots
from streamkpca.kernels import RBF

try:
    from sklearn.datasets import load_digits
    from sklearn.decomposition import PCA
    from sklearn.decomposition import KernelPCA as PeerKernelPCA
except ModuleNotFoundError as error:
    raise SystemExit(f'denoise_digits.py needs {error.name}; pip install "streamkpca[plots,sklearn]"') from None

Array = npt.NDArray[np.float64]
N_TRAIN = 1300
AXES = (5, 10, 15, 20, 25, 30, 40, 50, 64)
ALPHAS = (1.0, 0.1, 0.01, 1e-3, 1e-4)
STYLES = {
    "streaming": ("#0072B2", "-", "o"),
    "PCA": ("#D55E00", "-", "s"),
    "scikit-learn's kernel PCA, best alpha": ("#009E73", "--", "^"),
}


def share_found(clean: Array, found: Array) -> float:
    """Return R^2 over all pixels together."""
    return float(1.0 - ((clean - found) ** 2).sum() / ((clean - clean.mean(axis=0)) ** 2).sum())


def save_picture(path: Path, shares: dict[str, list[float]], noisy: float, images: dict[str, Array]) -> None:
    """Draw the shares by the number of axes, and one digit of each class with a line of digits for each method."""
    figure = plots.make_figure(width=10, height=3.0 + 0.9 * len(images))
    upper, lower = figure.subfigures(2, 1, height_ratios=[3.0, 0.9 * len(images)])
    panel = upper.add_subplot()
    for name, values in shares.items():
        color, line, marker = STYLES[name]
        panel.plot(AXES, values, color=color, linestyle=line, marker=marker, label=name)
    panel.axhline(noisy, color="#555555", linestyle=":", label="noisy digits as they are")
    panel.set(title="variance of the digits that is recovered", xlabel="number of axes", ylabel="share", ylim=(0, 0.8))
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.02, 0.22), ncols=2)
    grid = lower.subplots(len(images), 10, squeeze=False)
    for line_of_panels, (name, rows) in zip(grid, images.items(), strict=True):
        for axes, row in zip(line_of_panels, rows, strict=True):
            axes.imshow(row.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
            axes.set(xticks=[], yticks=[])
        line_of_panels[0].set_ylabel(name, rotation=0, ha="right", va="center")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Take noise out of digits, beside scikit-learn.")
    parser.add_argument("--noise", type=float, default=4.0, help="standard deviation; pixels go to 16 (default 4)")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the picture (default: this one)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)

    rows, digits = load_digits(return_X_y=True)
    train, clean = rows[:N_TRAIN], rows[N_TRAIN:]
    noisy = clean + np.random.default_rng(0).normal(scale=arguments.noise, size=clean.shape)
    # Noise doubles the distances between digits, so the kernel is twice as wide as it would be by default.
    kernel = RBF("scale").settled(train)

    found: dict[tuple[str, int], Array] = {}
    for n_axes in AXES:
        ours = StreamingKernelPCA(n_axes, kernel=kernel).partial_fit(train).refit()
        found["streaming", n_axes] = ours.inverse_transform(ours.transform(noisy))
        linear = PCA(n_axes).fit(train)
        found["PCA", n_axes] = linear.inverse_transform(linear.transform(noisy))
        peers = []
        for alpha in ALPHAS:
            peer = PeerKernelPCA(n_axes, kernel="rbf", gamma=kernel.gamma, fit_inverse_transform=True, alpha=alpha)
            peers.append(peer.fit(train).inverse_transform(peer.transform(noisy)))
        found["scikit-learn's kernel PCA, best alpha", n_axes] = max(peers, key=lambda each: share_found(clean, each))
    shares = {name: [share_found(clean, found[name, n_axes]) for n_axes in AXES] for name in STYLES}
    before = share_found(clean, noisy)

    print(f"{len(train):,} digits learned, {len(clean)} with noise of {arguments.noise:g} of 16")
    print(f"{ours.n_atoms_} atoms, {ours.n_active_} of them in the last axes, {ours.kernel_}\n")
    print(f"{'axes':>38} {'  '.join(f'{n_axes:>5}' for n_axes in AXES)}")
    for name, values in shares.items():
        print(f"{name:>38} {'  '.join(f'{share:5.3f}' for share in values)}")
    print(f"{'noisy':>38} {before:5.3f}")
    first = [int(np.flatnonzero(digits[N_TRAIN:] == digit)[0]) for digit in range(10)]
    best = AXES[int(np.argmax(shares["PCA"]))]
    shown = {"clean": clean, "noisy": noisy}
    shown |= {
        f"{name}, {n_axes} axes": found[name, n_axes] for name, n_axes in (("streaming", AXES[-1]), ("PCA", best))
    }
    images = {name: values[first] for name, values in shown.items()}
    save_picture(arguments.out / "denoise_digits.png", shares, before, images)
    print(f"picture: {arguments.out / 'denoise_digits.png'}")


if __name__ == "__main__":
    main()
