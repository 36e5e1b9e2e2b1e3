"""Contours of components, or of the reconstruction error, over two features."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.parameters import check_integer
from streamkpca.models._base import Estimator
from streamkpca.plots.canvas import (
    INK,
    Array,
    add_color_bar,
    add_legend_below,
    axes_or_new,
    check_count,
    check_shape,
    every_nth,
    finish,
)
from streamkpca.rows.validation import as_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_ROWS = 1000
_LEVELS = 12
_MARGIN = 0.12


def draw_contours(
    model: Estimator | Callable[[Array], Any],
    rows: npt.ArrayLike,
    *,
    component: int | None = None,
    features: tuple[int, int] = (0, 1),
    at: npt.ArrayLike | None = None,
    feature_names: Sequence[str] | None = None,
    resolution: int = 101,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw contours of a component, or of the reconstruction error, over two features.

    Parameters
    ----------
    model : estimator or callable
        A fitted model, whose active atoms are circled; or any function of rows (n, d), like ``model.transform``, that
        returns one or several numbers for each row.
    rows : array-like of shape (n, d)
        Rows to draw as points; they set the range of the features. Of more than 1,000 an even selection is drawn.
    component : int, optional
        Which of the model's components, or of the function's numbers, to draw. None: the model's reconstruction error
        from its active atoms, or a function that returns one number.
    features : (int, int)
        The features on the two axes.
    at : array-like of shape (d,), optional
        Values of the other features; their medians over the rows if None.
    feature_names : sequence of d str, optional
        A model's `feature_names_in_`; numbers if None.
    resolution : int
        Number of points along each axis; the function is evaluated at its square.
    ax : Axes, optional
        Axes to draw on; those of a new figure if None.

    Returns
    -------
    Axes

    Raises
    ------
    TypeError, ValueError
        The rows are not numbers; the function does not return one number for each row, or has no such component;
        names and features differ in number; the resolution is below 2.

    Notes
    -----
    Nothing is drawn where the function is not finite. If values have both signs, the colours span the values at the
    rows, with their other features set as `at` tells: away from the rows a polynomial grows without bound, and its
    values would give all rows the same colour.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca.plots import draw_contours
    >>> corners = np.array([[-1.0, -1.0], [1.0, 1.0]])
    >>> draw_contours(lambda X: X[:, 0] * X[:, 1], corners).get_xlabel()
    'feature 0'
    """
    where = "draw_contours"
    points = as_rows(rows, where=where)
    resolution = check_integer("resolution", resolution, least=2, where=where)
    if feature_names is not None:
        check_count(feature_names, points.shape[1], "names of features", where=where)
    points = points[:: every_nth(len(points), _MOST_ROWS)]
    d = points.shape[1]
    fixed = np.median(points, axis=0) if at is None else check_shape(at, (d,), "at", where=where, remedy="pass a row")
    pair = list(features)
    if len(set(pair)) != 2 or not all(0 <= feature < d for feature in pair):
        raise ValueError(f"{where} expected two of the features 0 to {d - 1} but got {features}; choose two")
    function, name, unit = _function_of(model, component)

    def evaluate(coordinates: Array) -> Array:
        slice_rows = np.tile(fixed, (len(coordinates), 1))
        slice_rows[:, pair] = coordinates
        return _numbers(function(slice_rows), len(coordinates), component, where)

    axes = axes_or_new(ax)
    shown = points[:, pair]
    low, high = shown.min(axis=0), shown.max(axis=0)
    margin = np.where(high > low, _MARGIN * (high - low), 1.0)
    x, y = (np.linspace(low[i] - margin[i], high[i] + margin[i], resolution) for i in (0, 1))
    grid = np.stack(np.meshgrid(x, y), axis=-1)
    surface = evaluate(grid.reshape(-1, 2)).reshape(resolution, resolution)
    _draw_surface(axes, x, y, surface, evaluate(shown), is_signed=component is not None, unit=unit)
    axes.plot(*shown.T, ".", color=INK, markersize=4, alpha=0.7, markeredgewidth=0, label=f"rows ({len(points):,})")
    circled = _active_atoms(model)
    if circled is not None:
        from matplotlib.patheffects import withStroke

        label = f"active atoms ({len(circled):,})"
        axes.plot(
            *circled[:, pair].T,
            "o",
            color=INK,
            fillstyle="none",
            markersize=8,
            markeredgewidth=1.4,
            label=label,
            # The white ring sets the black one off from any colour beneath.
            path_effects=[withStroke(linewidth=3.4, foreground="white")],
        )
    axes.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    add_legend_below(axes)
    held = "" if d == 2 else ", other features at their medians" if at is None else ", other features fixed"
    names = [f"feature {i}" for i in range(d)] if feature_names is None else list(feature_names)
    finish(axes, name + held, names[pair[0]], names[pair[1]])
    return axes


def _function_of(
    model: Estimator | Callable[[Array], Any], component: int | None
) -> tuple[Callable[[Array], Any], str, str]:
    """Return the function to draw, its name, and the unit of its values."""
    name = f"component {component}"
    if not isinstance(model, Estimator):
        return (model, "contours", "value") if component is None else (model, name, "value")
    if component is not None:
        return model.transform, name, "projection"
    return (
        lambda rows: model.reconstruction_error(rows, active_only=True),
        "reconstruction error from the active atoms",
        "squared distance, in units of k(x, x)",
    )


def _numbers(values: Any, n: int, component: int | None, where: str) -> Array:
    """Take the numbers of one component (n,) from what the function returned."""
    array = np.asarray(values, dtype=np.float64)
    if component is not None and array.ndim == 2 and 0 <= component < array.shape[1]:
        array = array[:, component]
    if array.shape != (n,):
        wanted = f"one number for each of {n} rows" if component is None else f"a column {component} for {n} rows"
        raise ValueError(f"{where} expected {wanted} but the function gave {array.shape}; choose another component")
    return array


def _active_atoms(model: Any) -> Array | None:
    # Models that keep every row have no active atoms.
    active = getattr(model, "active_", None)
    return None if active is None else np.asarray(model.atoms_[active])


def _draw_surface(
    axes: "Axes", x: Array, y: Array, surface: Array, at_rows: Array, *, is_signed: bool, unit: str
) -> None:
    """Fill between contours; values of both signs get two colours that meet at zero."""
    from matplotlib.ticker import MaxNLocator

    known = surface[np.isfinite(surface)]
    if not len(known) or np.ptp(known) == 0.0:
        axes.set_facecolor("#F7F7F7")
        return
    low, high = float(known.min()), float(known.max())
    is_signed = is_signed or low < 0.0 < high
    ends = (0.0 if low >= 0.0 else low, high)
    if is_signed:
        most = float(np.abs(at_rows[np.isfinite(at_rows)]).max(initial=0.0)) or max(-low, high)
        ends = (-most, most)
    levels = np.array(MaxNLocator(_LEVELS, symmetric=is_signed).tick_values(*ends))
    surface = np.ma.masked_invalid(surface)
    style: dict[str, Any] = {"cmap": "RdBu_r" if is_signed else "YlGnBu", "extend": _extend(low, high, levels)}
    filled = axes.contourf(x, y, surface, levels, alpha=0.8, **style)
    axes.contour(x, y, surface, levels, colors=INK, linewidths=0.4)
    add_color_bar(axes, filled, unit)


def _extend(low: float, high: float, levels: Array) -> str:
    below, above = low < levels[0], high > levels[-1]
    return {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}[below, above]
