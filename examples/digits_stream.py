"""Digits as a stream
==================

Handwritten digits as a stream, compared with kernel PCA of all of them at once.

scikit-learn's 1,797 digits of 8 x 8 pixels arrive 50 at a time. The streaming model keeps a bounded number of them as
atoms and publishes axes made of few of these (sparse); a second model of the same stream uses all atoms for its axes
(full). Exact kernel PCA keeps every digit. The script prints how far they agree and saves a picture.

Run it in any folder (needs the extras ``plots`` and ``sklearn``)::

    python digits_stream.py
    python digits_stream.py --atoms 400 --out pictures
"""

import argparse
import copy
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from streamkpca import KernelPCA, StreamingKernelPCA, plots
from streamkpca.kernels import RBF

try:
    from sklearn.datasets import load_digits
    from sklearn.decomposition import KernelPCA as PeerKernelPCA
except ModuleNotFoundError as error:
    raise SystemExit(f'digits_stream.py needs {error.name}; pip install "streamkpca[plots,sklearn]"') from None

Array = npt.NDArray[np.float64]
CHUNK = 50


def principal_cosines(ours: Array, theirs: Array) -> Array:
    """Measure how far two sets of projections of the same rows span the same space; all 1 if they do."""
    (first, _), (second, _) = np.linalg.qr(ours - ours.mean(axis=0)), np.linalg.qr(theirs - theirs.mean(axis=0))
    return np.linalg.svd(first.T @ second, compute_uv=False)


def save_picture(
    path: Path, sparse: StreamingKernelPCA, full: StreamingKernelPCA, exact: KernelPCA, rows: Array, digits: Array
) -> None:
    """Draw the sparse and the exact projections, coloured by digit, and all spectra."""
    theirs, ours = exact.transform(rows), sparse.transform(rows)
    # An axis may point either way; turn ours like theirs, so that the pictures can be compared.
    ours *= np.where(np.einsum("ij,ij->j", ours, theirs) < 0.0, -1.0, 1.0)
    figure = plots.make_figure(width=14, height=4.6)
    left, middle, right = figure.subplots(1, 3)
    plots.draw_projections(ours, groups=digits, ax=left)
    plots.draw_projections(theirs, groups=digits, ax=middle)
    middle.sharex(left)
    middle.sharey(left)
    left.get_legend().remove()
    middle.get_legend().remove()
    middle.legend(
        title="digit", fontsize="small", markerscale=2, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5)
    )
    left.set_title(f"streaming, from {sparse.n_active_} digits", fontsize="medium")
    middle.set_title(f"exact, from all {len(rows):,} digits", fontsize="medium")
    components = np.arange(len(exact.eigenvalues_))
    for shift, model, color, label in (
        (-0.27, sparse, "#D55E00", f"streaming, sparse: {sparse.n_active_} digits"),
        (0.0, full, "#E69F00", f"streaming, full: {full.n_active_} digits"),
        (0.27, exact, "#56B4E9", f"exact: {exact.n_atoms_:,} digits"),
    ):
        right.bar(components + shift, model.eigenvalues_, width=0.27, color=color, label=label)
    right.set(xlabel="component", ylabel="variance", xticks=components)
    right.set_title("spectrum", fontsize="medium")
    right.legend(fontsize="small", frameon=False)
    right.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Stream scikit-learn's digits and compare with exact kernel PCA.")
    parser.add_argument("--atoms", type=int, default=200, help="budget of atoms (default 200)")
    parser.add_argument("--components", type=int, default=10, help="number of axes (default 10)")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the picture (default: this one)")
    arguments = parser.parse_args()
    rows, digits = load_digits(return_X_y=True)
    # One number for all models, so that they differ only in the rows that they keep.
    kernel = RBF("scale").settled(rows)
    q = arguments.components

    # Loops compile on first use; a timed run should not include that.
    StreamingKernelPCA(q, kernel=kernel).partial_fit(rows[:CHUNK]).refit()
    start = time.perf_counter()
    # The stream is short, so blocks are half as long as usual.
    sparse = StreamingKernelPCA(q, kernel=kernel, max_atoms=arguments.atoms, block_size=256)
    for chunk in np.array_split(rows, range(CHUNK, len(rows), CHUNK)):
        sparse.partial_fit(chunk)
    sparse.refit()
    streaming_seconds = time.perf_counter() - start
    full = copy.copy(sparse).set_params(noise_variance=None).refit()

    start = time.perf_counter()
    exact = KernelPCA(q, kernel=kernel).fit(rows)
    exact_seconds = time.perf_counter() - start

    start = time.perf_counter()
    peer = PeerKernelPCA(q, kernel="rbf", gamma=kernel.gamma, eigen_solver="dense").fit(rows)
    peer_seconds = time.perf_counter() - start

    theirs = exact.transform(rows)
    both = [model.transform(rows) for model in (sparse, full)]
    alignment = [[abs(np.corrcoef(ours[:, i], theirs[:, i])[0, 1]) for i in range(q)] for ours in both]
    print(f"{len(rows):,} digits in chunks of {CHUNK}, {kernel}, {sparse.n_atoms_} atoms\n")
    print("           eigenvalue                                     correlation with the exact projection")
    print("component      sparse       full      exact  scikit-learn     sparse      full")
    for i in range(q):
        print(
            f"{i:>9} {sparse.eigenvalues_[i]:>11.5f} {full.eigenvalues_[i]:>10.5f} {exact.eigenvalues_[i]:>10.5f} "
            # scikit-learn does not divide its eigenvalues by the number of rows, which would make them variances.
            f"{peer.eigenvalues_[i] / (len(rows) - 1):>13.5f} {alignment[0][i]:>10.4f} {alignment[1][i]:>9.4f}"
        )

    unexplained = [model.reconstruction_error(rows).mean() / kernel.diagonal(rows).mean() for model in (sparse, full)]
    captured = [ours.var(axis=0).sum() / theirs.var(axis=0).sum() for ours in both]
    cosines = [principal_cosines(ours, theirs).min() for ours in both]
    kept = (sparse.n_active_, full.n_active_, exact.n_atoms_, len(peer.X_fit_))
    print(f"\n{'':<46} {'sparse':>8} {'full':>8} {'exact':>8} {'scikit-learn':>13}")
    print(f"{'digits in the axes':<46} {kept[0]:>8,} {kept[1]:>8,} {kept[2]:>8,} {kept[3]:>13,}")
    print(f"{'energy outside the span of all atoms':<46} {unexplained[0]:>8.2%} {unexplained[1]:>8.2%} {0.0:>8.2%}")
    print(f"{'variance on the axes, of that on the exact':<46} {captured[0]:>8.2%} {captured[1]:>8.2%} {1.0:>8.2%}")
    print(f"{'smallest cosine of the axes with the exact':<46} {cosines[0]:>8.4f} {cosines[1]:>8.4f} {1.0:>8.4f}")
    print(f"{'seconds':<46} {streaming_seconds:>8.2f} {'':>8} {exact_seconds:>8.2f} {peer_seconds:>13.2f}")

    arguments.out.mkdir(parents=True, exist_ok=True)
    picture = arguments.out / "digits_stream.png"
    save_picture(picture, sparse, full, exact, rows, digits)
    print(f"\npicture: {picture}")


if __name__ == "__main__":
    main()
