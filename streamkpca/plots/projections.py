"""Rows in the plane of two components."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamkpca.errors import name_errors
from streamkpca.plots import canvas
from streamkpca.rows.times import in_utc

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Area in square points that all dots together may cover.
_DOT_AREA = 18_000.0


@name_errors
def draw_projections(
    projections: npt.ArrayLike,
    *,
    components: tuple[int, int] = (0, 1),
    color: npt.ArrayLike | None = None,
    color_name: str = "row",
    groups: npt.ArrayLike | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw rows in the plane of two components, coloured by time, by a value, or by group.

    Parameters
    ----------
    projections : array-like of shape (n, q)
        Projections, from `transform`; an even selection of more than 6,000 rows is drawn, in their order.
    components : (int, int)
        The components on the two axes.
    color : array-like of shape (n,), optional
        A value for each row, or a time (datetime64); the row's position if None and there are no groups.
    color_name : str
        Name of the colour bar.
    groups : array-like of shape (n,), optional
        A class for each row; overrides `color`.
    ax : Axes, optional
        Axes to draw on; those of a new figure if None.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        There are no such components; colours or groups differ from the rows in number.

    Examples
    --------
    >>> from streamkpca.plots import draw_projections
    >>> draw_projections([[0.0, 1.0], [1.0, 0.0]], groups=[3, 5]).get_legend().get_texts()[1].get_text()
    '5'
    """
    points = np.asarray(projections, dtype=np.float64)
    n_axes = points.shape[1] if points.ndim == 2 else 0
    if not all(component in range(n_axes) for component in components):
        raise ValueError(
            f"expected projections with the components {tuple(components)} but got an array of shape "
            f"{points.shape}; choose others, or fit a model with more"
        )
    for values, name in ((color, "colours"), (groups, "groups")):
        if values is not None:
            canvas.check_count(values, len(points), name)
    axes = canvas.axes_or_new(ax)
    points = points[:, [int(component) for component in components]]
    chosen = slice(None, None, canvas.every_nth(len(points), canvas.MOST_POINTS))
    x, y = points[chosen].T
    size = float(np.clip(_DOT_AREA / max(len(points), 1), 4.0, 16.0))
    style: dict[str, Any] = {"s": size, "linewidths": 0, "rasterized": True}
    if groups is not None:
        classes, which = np.unique(np.asarray(groups), return_inverse=True)
        palette = canvas.on_background(canvas.group_colors(len(classes)), axes)
        axes.scatter(x, y, color=[palette[i] for i in which[chosen]], **style)
        for shade, name in zip(palette, classes, strict=True):
            axes.scatter([], [], s=size, color=shade, label=str(name), linewidths=0)
        axes.legend(fontsize="x-small", markerscale=2, ncols=1 + len(classes) // 6, framealpha=0.85, loc="best")
    else:
        values, ticks = _as_shades(np.arange(len(points)) if color is None else color)
        dots = axes.scatter(x, y, c=values[chosen], cmap="viridis", **style)
        bar = axes.figure.colorbar(dots, ax=axes, label=color_name, shrink=0.9, pad=0.015, **ticks)
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize="small")
    # Distances are those of feature space, so both axes have one scale.
    axes.set_aspect("equal", adjustable="datalim")
    canvas.finish(axes, "projections", f"component {components[0]}", f"component {components[1]}")
    return axes


def _as_shades(color: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], dict[str, Any]]:
    """Convert values or times to numbers; also return the tick options of their colour bar."""
    values = in_utc(np.asarray(color))
    if values.dtype.kind != "M":
        return values.astype(np.float64), {}
    from matplotlib import dates as untyped_dates

    dates: Any = untyped_dates
    locator = dates.AutoDateLocator()
    return dates.date2num(values), {"ticks": locator, "format": dates.ConciseDateFormatter(locator)}
