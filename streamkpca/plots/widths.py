"""How well kernels of several widths tell rows from rows with one foreign number."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from streamkpca.plots.canvas import (
    FAINT,
    Array,
    add_legend_below,
    axes_or_new,
    finish,
    group_colors,
    ink,
    on_background,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from streamkpca.kernels import Kernel


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
        There are no scores, a width is not a finite number above 0, an area is not between 0 and 1, or the chosen
        kernel has other parameters.

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
    curves = {path: _checked(values, path, where) for path, values in scores.items()}
    if not curves:
        raise ValueError(f"{where} expected scores of at least one width but got none; the kernel has no width")
    widths = {} if chosen is None else _widths_of(chosen, curves, where)
    axes = axes_or_new(ax)
    for (path, (x, areas)), color in zip(curves.items(), on_background(group_colors(len(curves)), axes), strict=True):
        axes.plot(x, areas, "o-", color=color, linewidth=1.2, markersize=4, label=path)
        if path in widths:
            # A width that is not one of those compared has no area: then the line between its neighbours is marked.
            height = np.interp(np.log(widths[path]), np.log(x), areas)
            axes.axvline(widths[path], color=color, linewidth=0.9, linestyle=":")
            axes.plot([widths[path]], [height], "D", color=color, markersize=8, markeredgecolor=ink(axes), zorder=3)
    axes.axhline(0.5, color=FAINT, linewidth=0.9, linestyle="--")
    axes.set_xscale("log")
    title = (
        "contrast of widths"
        if not widths
        else f"contrast of widths, with {'that' if len(curves) == 1 else 'those'} in use"
    )
    kinds = {path.endswith("gamma") for path in curves}
    names = {True: "1 / gamma", False: "length scale"}
    finish(axes, title, " or ".join(names[kind] for kind in sorted(kinds)), "area under the ROC curve")
    if len(curves) > 1:
        add_legend_below(axes)
    return axes


def _checked(values: npt.ArrayLike, path: str, where: str) -> tuple[Array, Array]:
    """Return the widths, the wider the larger and in ascending order, and their areas."""
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != 2 or not len(table):
        raise ValueError(f"{where} expected pairs of a width and an area for {path!r} but got shape {table.shape}")
    widths, areas = table.T
    if not (np.isfinite(widths).all() and np.all(widths > 0.0) and np.all((areas >= 0.0) & (areas <= 1.0))):
        raise ValueError(
            f"{where} expected widths above 0 and areas between 0 and 1 for {path!r} but got {table.tolist()}; "
            "pass a model's width_scores_"
        )
    x = _as_length(path, widths)
    order = np.argsort(x)
    return x[order], areas[order]


def _widths_of(chosen: "Kernel", curves: Mapping[str, object], where: str) -> dict[str, float]:
    """Return the widths of a kernel by the paths of the curves."""
    known = chosen.parameters()
    for path in curves:
        if not isinstance(known.get(path), int | float):
            raise ValueError(
                f"{where} expected a kernel whose {path!r} is a number but got {chosen!r}; pass the kernel_ of the "
                "model that the scores are of"
            )
    return {path: float(_as_length(path, np.asarray(float(known[path])))) for path in curves}


def _as_length(path: str, widths: Array) -> Array:
    return 1.0 / widths if path.endswith("gamma") else widths
