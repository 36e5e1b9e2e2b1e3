"""Variances along the axes, and how well kernels of several widths tell rows from rows with one foreign number."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from streamkpca.plots.canvas import (
    BAR,
    FAINT,
    add_legend_below,
    axes_or_new,
    check_count,
    every_nth,
    finish,
    group_colors,
    ink,
    on_background,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from streamkpca.kernels import Kernel

# More numbers would overlap.
_MOST_NUMBERS = 16


def draw_spectrum(
    eigenvalues: npt.ArrayLike,
    *,
    explained: npt.ArrayLike | None = None,
    bounds: npt.ArrayLike | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the variance along each axis, the share that the first ones explain together, and the bounds of both.

    Parameters
    ----------
    eigenvalues : array-like of shape (q,)
        A model's `eigenvalues_`, in units of k(x, x).
    explained : array-like of shape (q,), optional
        A model's `explained_variance_ratio_`; its running sum is written over the bars.
    bounds : array-like of shape (q, 2), optional
        A model's `eigenvalue_bounds_`, drawn as ranges: the eigenvalues of kernel PCA of all rows lie between them.
        Bars may end below their range: axes made of few rows have less variance than the best ones.
    ax : Axes, optional
        Axes to draw on; those of a new figure if None.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        The eigenvalues are not finite numbers, or `explained` or `bounds` have another number of axes.

    Examples
    --------
    >>> from streamkpca.plots import draw_spectrum
    >>> axes = draw_spectrum([3.0, 1.0], explained=[0.6, 0.2], bounds=[[2.8, 3.3], [0.9, 1.4]])
    >>> axes.get_ylabel()
    'variance, in units of k(x, x)'
    """
    where = "draw_spectrum"
    heights = np.asarray(eigenvalues, dtype=np.float64)
    if heights.ndim != 1 or not np.isfinite(heights).all():
        raise ValueError(f"{where} expected finite numbers, one for each axis, but got {heights}; pass eigenvalues_")
    q = len(heights)
    for values, name in ((explained, "shares"), (bounds, "pairs of bounds")):
        if values is not None:
            check_count(values, q, name, where=where)
    axes = axes_or_new(ax)
    components, tops, step = np.arange(q), heights, every_nth(q, _MOST_NUMBERS)
    axes.bar(components, heights, color=BAR, width=0.75, label="the model")
    if bounds is not None:
        low, high = np.asarray(bounds, dtype=np.float64).reshape(q, 2).T
        axes.vlines(components, low, high, color=ink(axes), linewidth=1.3, label="kernel PCA of all rows lies between")
        axes.plot(np.repeat(components, 2), np.stack([low, high], axis=1).ravel(), "_", color=ink(axes), markersize=7)
        tops = np.maximum(heights, high)
        add_legend_below(axes)
    if explained is not None:
        shares = np.cumsum(np.asarray(explained, dtype=np.float64))
        # Among the narrow bars of many components, higher bars on the left would cover a centred number.
        left, alignment = (0.0, "center") if step == 1 else (0.4, "left")
        for i in range(0, q, step):
            axes.annotate(
                f"{shares[i]:.0%}",
                (i - left, tops[i]),
                xytext=(0, 3),
                textcoords="offset points",
                ha=alignment,
                fontsize="x-small",
                color=ink(axes),
            )
    axes.set_xticks(components[::step])
    title = "spectrum" if explained is None else "spectrum, with the share explained so far"
    finish(axes, title, "component", "variance, in units of k(x, x)")
    return axes


def draw_width_scores(
    scores: Mapping[str, npt.ArrayLike], *, chosen: "Kernel | None" = None, ax: "Axes | None" = None
) -> "Axes":
    """Draw the area under the ROC curve of each width that a kernel might have, and mark the width that it has.

    Parameters
    ----------
    scores : mapping of str to array-like of shape (g, 2)
        A model's `width_scores_`, or what `Kernel.width_scores` returned: one curve for each width parameter.
    chosen : Kernel, optional
        A model's `kernel_`; its widths are marked.
    ax : Axes, optional
        Axes to draw on; those of a new figure if None.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        There are no scores, a width is not above 0, an area is not between 0 and 1, or the chosen kernel has other
        parameters.

    Notes
    -----
    Wide kernels are on the right: parameters whose name ends in gamma, which is small for a wide kernel, are drawn as
    1 / gamma. An area of .5, the dashed line, means that a kernel sees no difference.

    Examples
    --------
    >>> from streamkpca.kernels import RBF
    >>> from streamkpca.plots import draw_width_scores
    >>> axes = draw_width_scores({"gamma": [[0.1, 0.7], [0.03, 0.8], [0.01, 0.82]]}, chosen=RBF(0.03))
    >>> axes.lines[0].get_ydata()
    array([0.7 , 0.8 , 0.82])
    """
    where = "draw_width_scores"
    if not scores:
        raise ValueError(f"{where} expected scores of at least one width but got none; the kernel has no width")
    known = {} if chosen is None else chosen.parameters()
    curves = []
    for path, pairs in scores.items():
        table = np.asarray(pairs, dtype=np.float64)
        has_pairs = table.ndim == 2 and table.shape[1] == 2 and len(table) > 0
        if not has_pairs or not (np.all((table >= 0.0) & (table <= [np.finfo(float).max, 1.0])) and table[:, 0].all()):
            raise ValueError(
                f"{where} expected pairs of a width above 0 and an area between 0 and 1 for {path!r} but got "
                f"{table.tolist()}; pass a model's width_scores_"
            )
        if chosen is not None and not isinstance(known.get(path), int | float):
            raise ValueError(
                f"{where} expected a kernel whose {path!r} is a number but got {chosen!r}; pass the kernel_ of the "
                "model that the scores are of"
            )
        exponent = -1.0 if path.endswith("gamma") else 1.0
        widths, areas = table[np.argsort(table[:, 0] ** exponent)].T
        curves.append((path, widths**exponent, areas, float(known[path]) ** exponent if chosen is not None else None))
    axes = axes_or_new(ax)
    colors = on_background(group_colors(len(curves)), axes)
    for (path, x, areas, width), color in zip(curves, colors, strict=True):
        axes.plot(x, areas, "o-", color=color, linewidth=1.2, markersize=4, label=path)
        if width is not None:
            axes.axvline(width, color=color, linewidth=0.9, linestyle=":")
            # A width that is not one of those compared has no area: the line between its neighbours is marked.
            height = np.interp(np.log(width), np.log(x), areas)
            axes.plot([width], [height], "D", color=color, markersize=8, markeredgecolor=ink(axes), zorder=3)
    axes.axhline(0.5, color=FAINT, linewidth=0.9, linestyle="--")
    axes.set_xscale("log")
    names = sorted({"1 / gamma" if path.endswith("gamma") else "length scale" for path in scores})
    title = "contrast of widths" if chosen is None else "contrast of widths, with those in use"
    finish(axes, title, " or ".join(names), "area under the ROC curve")
    if len(scores) > 1:
        add_legend_below(axes)
    return axes
