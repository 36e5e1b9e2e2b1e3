"""Shapes in space
===============

Four shapes in space, projected to the plane by exact kernel PCA and by a stream within a budget.

The shapes are an omega (a band bent like the letter), a sphere, the edges of a cube and five clouds, 2,000 points each.
Exact kernel PCA keeps all points of a shape; the streaming model sees them once, in chunks, and keeps a few as atoms.
The script prints how far both agree and draws each shape in space beside its two projections.

This is the usual picture of kernel PCA on curved data, as in Schölkopf, Smola and Müller (1998), whose
toy examples lie in the plane. It differs in that the shapes are in space and made here, from a fixed seed.

Sphere and cube look the same from three sides, so their first three eigenvalues are equal but for chance, and chance
decides which plane among these axes comes first. For these shapes compare the space of three axes, not the plane.

Run it in any folder (needs the extra ``plots``)::

    python shapes_in_space.py
    python shapes_in_space.py --atoms 12 --out pictures
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca import KernelPCA, StreamingKernelPCA, plots
from streamkpca.kernels import RBF

Array = npt.NDArray[np.float64]
CHUNK = 100
NOISE = 0.03


def omega(n: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Bend a band like the letter omega; coloured along the bend."""
    # Two feet of length 0.7 and an arc of radius 1 that leaves an opening of 60 degrees between them.
    ends = np.radians([-60.0, 240.0])
    arc = float(np.ptp(ends))
    along = random.uniform(-0.7, arc + 0.7, n)
    angle = ends[1] - np.clip(along, 0.0, arc)
    foot = np.clip(along, None, 0.0) + np.clip(along - arc, 0.0, None)
    points = np.column_stack([np.cos(angle) + foot, random.uniform(-0.5, 0.5, n), np.sin(angle)])
    return points + random.normal(scale=NOISE, size=(n, 3)), along


def sphere(n: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Spread points evenly over a sphere; coloured by height."""
    points = random.normal(size=(n, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points + random.normal(scale=NOISE, size=(n, 3)), points[:, 2]


def cube(n: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Spread points over the twelve edges of a cube; coloured by height."""
    axis = random.integers(3, size=n)
    points = random.choice([-1.0, 1.0], size=(n, 3))
    points[np.arange(n), axis] = random.uniform(-1.0, 1.0, n)
    return points + random.normal(scale=NOISE, size=(n, 3)), points[:, 2]


def clouds(n: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Draw five round clouds with all their pairs at different distances; coloured by cloud."""
    centres = np.array([[1.2, 0.2, -0.4], [0.3, 1.2, 0.5], [-1.1, 0.6, -0.6], [-0.8, -1.0, 0.4], [0.5, -1.1, 0.9]])
    which = random.integers(len(centres), size=n)
    return centres[which] + random.normal(scale=0.2, size=(n, 3)), which.astype(np.float64)


SHAPES = {"omega": omega, "sphere": sphere, "cube": cube, "clouds": clouds}


def principal_cosines(ours: Array, theirs: Array) -> Array:
    """Measure how far two sets of projections of the same rows span the same space; all 1 if they do."""
    (first, _), (second, _) = np.linalg.qr(ours - ours.mean(axis=0)), np.linalg.qr(theirs - theirs.mean(axis=0))
    return np.linalg.svd(first.T @ second, compute_uv=False)


def turned(ours: Array, theirs: Array) -> Array:
    """Turn and mirror a projection to fit another as closely as possible."""
    left, _, right = np.linalg.svd(ours.T @ theirs)
    return ours @ left @ right


def draw(row: Any, name: str, points: Array, colors: Array, exact: Array, ours: Array, n_atoms: int) -> None:
    """Draw a shape in space and its two projections."""
    style: dict[str, Any] = {"c": colors, "s": 5, "linewidths": 0, "cmap": "turbo" if name != "clouds" else "tab10"}
    if name == "clouds":
        style |= {"vmax": 10}
    space, left, right = row
    space.scatter(*points.T, **style)
    space.set(xticks=[-1, 0, 1], yticks=[-1, 0, 1], zticks=[-1, 0, 1], aspect="equal")
    space.tick_params(labelsize="x-small")
    space.set_title(f"{name}: {len(points):,} points in space", fontsize="medium")
    for axes, projections, title in (
        (left, exact, f"exact, from all {len(points):,}"),
        (right, ours, f"streaming, from {n_atoms} atoms"),
    ):
        axes.scatter(*projections.T, **style)
        axes.set(xlabel="component 0", ylabel="component 1", aspect="equal")
        axes.set_title(title, fontsize="medium")
        axes.tick_params(labelsize="small")
        axes.spines[["top", "right"]].set_visible(False)
    right.sharex(left)
    right.sharey(left)


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Project four shapes in space to the plane, exactly and in a stream.")
    parser.add_argument("--points", type=int, default=2000, help="points of each shape (default 2,000)")
    parser.add_argument("--atoms", type=int, default=30, help="budget of atoms (default 30)")
    parser.add_argument("--gamma", type=float, default=0.5, help="width of the RBF kernel (default 0.5)")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the picture (default: this one)")
    arguments = parser.parse_args()
    kernel = RBF(gamma=arguments.gamma)

    print(f"{arguments.points:,} points a shape in chunks of {CHUNK}, {kernel}, {arguments.atoms} atoms\n")
    print("          outside   variance explained by 2 axes   smallest cosine with exact   eigenvalues of the exact")
    print("shape       atoms       exact  streaming   ratio         plane       3 axes          0       1       2")
    figure = plots.make_figure(width=11, height=14)
    for i, (name, make) in enumerate(SHAPES.items()):
        points, colors = make(arguments.points, np.random.default_rng(i))
        exact = KernelPCA(3, kernel=kernel).fit(points)
        # All atoms stay active: on a sphere no plane stands out, and the likelihood would find that.
        model = StreamingKernelPCA(3, kernel=kernel, max_atoms=arguments.atoms, noise_variance=None)
        for chunk in np.array_split(points, range(CHUNK, len(points), CHUNK)):
            model.partial_fit(chunk)
        model.refit()

        theirs, ours = exact.transform(points), model.transform(points)
        outside = model.reconstruction_error(points).mean() / kernel.diagonal(points).mean()
        variance = exact.eigenvalues_[0] / exact.explained_variance_ratio_[0]
        held = [projections[:, :2].var(axis=0, ddof=1).sum() / variance for projections in (theirs, ours)]
        plane, three = (principal_cosines(ours[:, :q], theirs[:, :q]).min() for q in (2, 3))
        print(
            f"{name:<10} {outside:>6.2%} {held[0]:>11.2%} {held[1]:>10.2%} {held[1] / held[0]:>7.4f} "
            f"{plane:>13.4f} {three:>12.4f}    " + "".join(f"{value:>8.4f}" for value in exact.eigenvalues_)
        )
        in_space = figure.add_subplot(4, 3, 3 * i + 1, projection="3d")
        row = (in_space, figure.add_subplot(4, 3, 3 * i + 2), figure.add_subplot(4, 3, 3 * i + 3))
        draw(row, name, points, colors, theirs[:, :2], turned(ours[:, :2], theirs[:, :2]), model.n_atoms_)

    arguments.out.mkdir(parents=True, exist_ok=True)
    picture = arguments.out / "shapes_in_space.png"
    figure.savefig(picture, dpi=110)
    print(f"\npicture: {picture}")


if __name__ == "__main__":
    main()
