"""The atoms that a model keeps, and the rows of the stream that they come from."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.parameters import check_integer
from streamkpca.plots.canvas import (
    FAINT,
    LINE,
    Array,
    add_color_bar,
    add_legend_below,
    axes_or_new,
    check_count,
    check_shape,
    every_nth,
    finish,
    ink,
)
from streamkpca.rows.validation import as_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_NAMES = 40
_MOST_LIFETIMES = 2000


def draw_atoms(
    atoms: npt.ArrayLike,
    *,
    weights: npt.ArrayLike | None = None,
    shape: tuple[int, int] | None = None,
    most: int = 40,
    color_map: str = "gray_r",
    feature_names: Sequence[str] | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the atoms of the largest weights, as small images or as lines over the features.

    Parameters
    ----------
    atoms : array-like of shape (m, d)
        A model's `atoms_`.
    weights : array-like of shape (m,), optional
        Its `weights_`: written below the images, or shown as the colour of the lines. Atoms without weight, which
        projections do not use, come last.
    shape : (int, int), optional
        Height and width of the image that each atom holds, line by line.
    most : int
        Largest number of atoms to draw.
    color_map : str
        Name of matplotlib's colour map for images; it spans the values of all atoms.
    feature_names : sequence of d str, optional
        A model's `feature_names_in_`; numbers if None.
    ax : Axes, optional
        Axes to draw on; those of a new figure if None.

    Returns
    -------
    Axes

    Raises
    ------
    TypeError, ValueError
        The atoms are not rows of numbers, or do not fit the shape; weights or names differ in number from atoms or
        features; `most` is below 1.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca.plots import draw_atoms
    >>> draw_atoms(np.eye(6), weights=[0.0, 1.0, 2.0, 0.0, 3.0, 0.5], shape=(2, 3), most=4).get_title()
    'the 4 of largest weight, of 6 atoms (4 active)'
    """
    where = "draw_atoms"
    rows = as_rows(atoms, where=where)
    most = check_integer("most", most, least=1, where=where)
    m, d = rows.shape
    if feature_names is not None:
        check_count(feature_names, d, "names of features", where=where)
    if shape is not None and (shape[0] * shape[1] != d or min(shape) < 1):
        raise ValueError(f"{where} expected atoms of {shape[0] * shape[1]} features for shape {shape} but got {d}")
    axes = axes_or_new(ax)
    title = f"{m} atoms" if most >= m else f"the first {most} of {m} atoms"
    shares = None
    if weights is not None:
        shares = check_shape(weights, (m,), "weights", where=where, remedy="pass a model's weights_")
        order = np.argsort(-shares, kind="stable")
        rows, shares = rows[order], shares[order]
        counted = f"{m} atoms ({np.count_nonzero(shares)} active)"
        title = f"{counted}, by weight" if most >= m else f"the {most} of largest weight, of {counted}"
        shares = shares[:most]
    if shape is None:
        _draw_lines(axes, rows[:most], shares, feature_names)
        finish(axes, title, "" if feature_names is not None else "feature", "value")
    else:
        _draw_images(axes, rows[:most].reshape(-1, *shape), shares, color_map)
        axes.set_title(title, fontsize="medium")
    return axes


def _draw_images(axes: "Axes", images: Array, weights: Array | None, color_map: str) -> None:
    count, height, width = images.shape
    # Pixels for a gap beside each image and a line of text below it.
    gap = max(1, round(0.1 * width))
    below = gap if weights is None else max(gap, round(0.35 * height))
    box = axes.get_window_extent()
    ratio = (box.width / (width + gap)) / (box.height / (height + below))
    columns = min(count, max(1, round(np.sqrt(count * ratio))))
    lines = -(-count // columns)
    wall = np.full((lines * (height + below), columns * (width + gap)), np.nan)
    for i, image in enumerate(images):
        top, left = i // columns * (height + below), i % columns * (width + gap)
        wall[top : top + height, left : left + width] = image
        axes.add_patch(_frame(left, top, width, height))
        if weights is not None:
            axes.annotate(
                f"{weights[i]:.2g}",
                (left + width / 2 - 0.5, top + height - 0.5),
                xytext=(0, -2),
                textcoords="offset points",
                ha="center",
                va="top",
                fontsize="x-small",
                color=ink(axes) if weights[i] > 0.0 else FAINT,
            )
    axes.imshow(np.ma.masked_invalid(wall), cmap=color_map, interpolation="nearest")
    axes.set_axis_off()


def _frame(left: int, top: int, width: int, height: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((left - 0.5, top - 0.5), width, height, fill=False, edgecolor=FAINT, linewidth=0.5)


def _draw_lines(axes: "Axes", rows: Array, weights: Array | None, names: Sequence[str] | None) -> None:
    from matplotlib import colormaps
    from matplotlib.collections import LineCollection
    from matplotlib.colors import ListedColormap
    from matplotlib.ticker import MaxNLocator

    features = np.arange(rows.shape[1])
    lines = np.stack([np.broadcast_to(features, rows.shape), rows], axis=2)
    if weights is None:
        axes.add_collection(LineCollection(list(lines), colors=LINE, linewidths=0.8, alpha=0.6))
    else:
        active = weights > 0.0
        axes.add_collection(LineCollection(list(lines[~active]), colors=FAINT, linewidths=0.5, alpha=0.5))
        # The heaviest atoms are drawn last, on top. The palest fifth of the colours would not show on white.
        shades = ListedColormap(colormaps["viridis_r"](np.linspace(0.2, 1.0, 256)))
        bundle = LineCollection(list(lines[active][::-1]), cmap=shades, linewidths=1.3)
        bundle.set_array(weights[active][::-1])
        axes.add_collection(bundle)
        if active.any():
            add_color_bar(axes, bundle, "weight" if active.all() else "weight (grey: none)")
    axes.autoscale_view()
    axes.margins(x=0.01)
    if names is None:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    else:
        step = every_nth(len(features), _MOST_NAMES)
        axes.set_xticks(features[::step], list(names)[::step], rotation=45, ha="right", rotation_mode="anchor")


def draw_atom_drift(
    row_counts: npt.ArrayLike, atom_rows: Sequence[npt.ArrayLike], *, ax: "Axes | None" = None
) -> "Axes":
    """Draw which rows of the stream the atoms come from, as the stream continues.

    Parameters
    ----------
    row_counts : array-like of shape (t,)
        A model's `n_samples_seen_` at t moments, ascending.
    atom_rows : sequence of t arrays of int
        The model's `atom_origins_` at each of these moments, or its `atom_rows_`; -1, which stands there for an atom
        that is no row any more, is left out.
    ax : Axes, optional
        Axes to draw on; those of a new figure if None.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        The row counts do not ascend, or there are not as many of them as sets of atom rows.

    Notes
    -----
    Every atom is a horizontal line at its row's number: from the diagonal, where the row arrived, to the last moment
    that found it among the atoms. Of more than 2,000 atoms an even selection is drawn.

    Examples
    --------
    >>> from streamkpca.plots import draw_atom_drift
    >>> axes = draw_atom_drift([100, 200], [[3, 50], [50, 120]])
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['current atoms (2)', 'former atoms (1)', 'median of the atoms', 'the newest row']
    """
    where = "draw_atom_drift"
    axes = axes_or_new(ax)
    counts = np.asarray(row_counts, dtype=np.int64)
    if len(counts) != len(atom_rows) or not len(counts) or (np.diff(counts) <= 0).any():
        raise ValueError(
            f"{where} expected ascending row_counts, one for each of {len(atom_rows)} sets of rows, but got "
            f"{counts.tolist()}; append n_samples_seen_ and atom_origins_ together"
        )
    sets = [rows[rows >= 0] for rows in (np.asarray(rows, dtype=np.int64) for rows in atom_rows)]
    last_count = {int(row): int(count) for count, rows in zip(counts, sets, strict=True) for row in rows}
    born = np.array(sorted(last_count), dtype=np.int64)
    gone = np.array([last_count[row] for row in born.tolist()], dtype=np.int64)
    is_kept = gone == counts[-1]
    for chosen, color, width, name in (
        (is_kept, LINE, 0.9, "current atoms"),
        (~is_kept, FAINT, 0.6, "former atoms"),
    ):
        if not chosen.any():
            continue
        step = every_nth(len(born), _MOST_LIFETIMES)
        lifetimes = np.flatnonzero(chosen)[::step]
        label = f"{name} ({np.count_nonzero(chosen):,})"
        axes.hlines(born[lifetimes], born[lifetimes], gone[lifetimes], color=color, linewidth=width, label=label)
    medians = [float(np.median(rows)) if len(rows) else np.nan for rows in sets]
    axes.plot(counts, medians, color=ink(axes), linewidth=1.5, marker=".", label="median of the atoms")
    axes.plot([0, counts[-1]], [0, counts[-1]], color=ink(axes), linewidth=0.8, linestyle=":", label="the newest row")
    axes.margins(0.01)
    add_legend_below(axes)
    finish(axes, "where the atoms come from", "rows seen", "row of the stream")
    return axes
