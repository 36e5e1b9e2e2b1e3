"""Shapes in space
===============

Four shapes in space are projected to the plane: by exact kernel PCA, which keeps all 2,000 points of each, and by a
stream that sees them once and keeps 30. Both pictures are nearly the same.

It is the usual picture of kernel PCA on curved data, as in Schölkopf, Smola and Müller (1998). The script needs the
extra ``plots``.
"""

import numpy as np
from scipy.linalg import orthogonal_procrustes, subspace_angles

from streamkpca import KernelPCA, StreamingKernelPCA, plots
from streamkpca.kernels import RBF

# %%
# The rows
# --------
#
# The points of each shape, and a number for each that colours it.

N = 2000
NOISE = 0.03

random = np.random.default_rng(0)
shapes = {}

# A band bent like the letter omega: an arc with two feet, coloured along the bend.
along = random.uniform(-0.7, np.radians(300) + 0.7, N)
angle = np.radians(240) - np.clip(along, 0, np.radians(300))
foot = np.minimum(along, 0) + np.maximum(along - np.radians(300), 0)
shapes["omega"] = np.column_stack([np.cos(angle) + foot, random.uniform(-0.5, 0.5, N), np.sin(angle)]), along

sphere = random.normal(size=(N, 3))
sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
shapes["sphere"] = sphere, sphere[:, 2]

# The twelve edges of a cube: two coordinates are those of a corner, and the third is free.
cube = random.choice([-1.0, 1.0], size=(N, 3))
cube[np.arange(N), random.integers(3, size=N)] = random.uniform(-1, 1, N)
shapes["cube"] = cube, cube[:, 2]

centres = np.array([[1.2, 0.2, -0.4], [0.3, 1.2, 0.5], [-1.1, 0.6, -0.6], [-0.8, -1.0, 0.4], [0.5, -1.1, 0.9]])
cloud = random.integers(5, size=N)
shapes["clouds"] = centres[cloud] + random.normal(scale=0.2, size=(N, 3)), cloud

# %%
# The models
# ----------
#
# The stream comes in chunks of 100 points. `noise_variance=None` lets all atoms take part in the axes: on a sphere no
# plane stands out, and sparse weights would show that.
#
# Axes may be turned and mirrored, so projections are compared as spaces: by the smallest cosine between them, which is
# 1 if they are the same. Sphere and cube look alike from three sides, their first three eigenvalues are equal but for
# chance, and chance may decide which two come first: compare the space of three axes there.

kernel = RBF(gamma=0.5)
figure = plots.make_figure(width=11, height=14)
print("shape   energy outside   variance on 2 axes,   smallest cosine of")
print("        the atoms        of the exact axes'    2 axes   3 axes")
for i, (name, (points, color)) in enumerate(shapes.items()):
    points = points + random.normal(scale=NOISE, size=points.shape)
    exact = KernelPCA(3, kernel=kernel).fit(points)
    model = StreamingKernelPCA(3, kernel=kernel, max_atoms=30, noise_variance=None)
    for chunk in np.array_split(points, N // 100):
        model.partial_fit(chunk)

    theirs, ours = exact.transform(points), model.refit().transform(points)
    outside = model.reconstruction_error(points).mean()
    ratio = ours[:, :2].var(axis=0).sum() / theirs[:, :2].var(axis=0).sum()
    centred = ours - ours.mean(axis=0)
    plane, three = (np.cos(subspace_angles(centred[:, :q], theirs[:, :q]).max()) for q in (2, 3))
    print(f"{name:<6} {outside:>15.2%} {ratio:>20.4f} {plane:>8.4f} {three:>8.4f}")

    # A line of the picture: the shape, and both projections, ours turned to fit the exact one.
    turned = ours[:, :2] @ orthogonal_procrustes(ours[:, :2], theirs[:, :2])[0]
    style = {"c": color, "s": 5, "linewidths": 0, "cmap": "turbo"}
    space = figure.add_subplot(4, 3, 3 * i + 1, projection="3d")
    space.scatter(*points.T, **style)
    ticks = {"xticks": [-1, 0, 1], "yticks": [-1, 0, 1], "zticks": [-1, 0, 1]}
    space.set(title=f"{name}: {N:,} points in space", aspect="equal", **ticks)
    for place, projections, title in ((2, theirs, f"exact, from all {N:,}"), (3, turned, "streaming, from 30 atoms")):
        panel = figure.add_subplot(4, 3, 3 * i + place)
        panel.scatter(*projections[:, :2].T, **style)
        panel.set(title=title, xlabel="component 0", ylabel="component 1", aspect="equal")
figure.savefig("shapes_in_space.png", dpi=110)
