"""Denoising handwritten digits: they are projected onto few axes, and pre-images give rows again.

Models learn 1,300 of scikit-learn's digits of 8 x 8 pixels without noise. The other 497 get Gaussian noise and are
projected, and `inverse_transform` finds rows with these projections. The streaming model is compared with PCA and with
kernel PCA of scikit-learn with the same kernel, at its default penalty `alpha` = 1 and at smaller ones, the best of
which cannot be known beforehand. The script prints how much of the digits' variance is recovered and saves a picture.

Run it in any folder (needs the extras ``plots`` and ``sklearn``)::

    python denoise_digits.py
    python denoise_digits.py --noise 6 --components 30 --out pictures
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
ALPHAS = (1.0, 0.1, 0.01, 1e-3, 1e-4)


def share_found(clean: Array, found: Array) -> float:
    """Return R^2 over all pixels together."""
    return float(1.0 - ((clean - found) ** 2).sum() / ((clean - clean.mean(axis=0)) ** 2).sum())


def save_picture(path: Path, images: dict[str, Array]) -> None:
    """Draw one digit of each class, with a line of digits for each method."""
    figure = plots.make_figure(width=10, height=0.9 * len(images))
    grid = figure.subplots(len(images), 10, squeeze=False)
    for line, (name, rows) in zip(grid, images.items(), strict=True):
        for axes, row in zip(line, rows, strict=True):
            axes.imshow(row.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
            axes.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Take noise out of digits, beside scikit-learn.")
    parser.add_argument("--noise", type=float, default=4.0, help="standard deviation; pixels go to 16 (default 4)")
    parser.add_argument("--components", type=int, default=25, help="number of axes (default 25)")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the picture (default: this one)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)

    rows, digits = load_digits(return_X_y=True)
    train, clean = rows[:N_TRAIN], rows[N_TRAIN:]
    noisy = clean + np.random.default_rng(0).normal(scale=arguments.noise, size=clean.shape)

    # Noise doubles the distances between digits, so the kernel is twice as wide as it would be by default.
    ours = StreamingKernelPCA(arguments.components, kernel=RBF("scale")).partial_fit(train).refit()
    found = {"clean": clean, "noisy": noisy, "streaming": ours.inverse_transform(ours.transform(noisy))}
    linear = PCA(arguments.components).fit(train)
    found["PCA"] = linear.inverse_transform(linear.transform(noisy))
    for alpha in ALPHAS:
        peer = PeerKernelPCA(
            arguments.components, kernel="rbf", gamma=ours.kernel_.gamma, fit_inverse_transform=True, alpha=alpha
        ).fit(train)
        found[f"scikit-learn, alpha {alpha:g}"] = peer.inverse_transform(peer.transform(noisy))
    shares = {name: share_found(clean, images) for name, images in found.items() if name != "clean"}

    print(f"{len(train):,} digits learned, {len(clean)} with noise of {arguments.noise:g} of 16")
    print(f"{ours.n_atoms_} of them are kept, {ours.n_active_} make {arguments.components} axes, {ours.kernel_}")
    for name, share in shares.items():
        print(f"{name:>26} {share:6.3f} of the variance")
    best = max((name for name in shares if name.startswith("scikit-learn")), key=lambda name: shares[name])
    first = [int(np.flatnonzero(digits[N_TRAIN:] == digit)[0]) for digit in range(10)]
    shown = {name: found[name][first] for name in ("clean", "noisy", "streaming", "PCA", best)}
    save_picture(arguments.out / "denoise_digits.png", shown)
    print(f"picture: {arguments.out / 'denoise_digits.png'}")


if __name__ == "__main__":
    main()
