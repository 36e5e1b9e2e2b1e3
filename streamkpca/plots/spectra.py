"""Variances along the axes."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamkpca.errors import name_errors
from streamkpca.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# More numbers would overlap.
_MOST_NUMBERS = 16


@name_errors
def draw_spectrum(
    eigenvalues: Any,
    *,
    explained: npt.ArrayLike | None = None,
    bounds: npt.ArrayLike | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the variance along each axis, the share that the first ones explain together, and the bounds of both.

    Parameters
    ----------
    eigenvalues : array-like of shape (q,), or estimator
        A model's `eigenvalues_`, in units of k(x, x); or the fitted model, whose shares and bounds are drawn too.
    explained : array-like of shape (q,), optional
        A model's `explained_variance_ratio_`; its running sum is written over the bars.
    bounds : array-like of shape (q, 2), optional
        A model's `eigenvalue_bounds_`: the eigenvalues of kernel PCA of all rows lie between them. Bars may end below
        their range: axes made of few rows have less variance than the best ones.
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
    >>> draw_spectrum([3.0, 1.0], explained=[0.6, 0.2], bounds=[[2.8, 3.3], [0.9, 1.4]]).get_ylabel()
    'variance, in units of k(x, x)'
    """
    if hasattr(eigenvalues, "fit"):
        model, eigenvalues = eigenvalues, eigenvalues.eigenvalues_
        explained = getattr(model, "explained_variance_ratio_", None) if explained is None else explained
        bounds = getattr(model, "eigenvalue_bounds_", None) if bounds is None else bounds
    heights = np.asarray(eigenvalues, dtype=np.float64)
    if heights.ndim != 1 or not np.isfinite(heights).all():
        raise ValueError(f"expected finite numbers, one for each axis, but got {heights}; pass eigenvalues_")
    q = len(heights)
    for values, name in ((explained, "shares"), (bounds, "pairs of bounds")):
        if values is not None:
            canvas.check_count(values, q, name)
    axes = canvas.axes_or_new(ax)
    components, tops, step = np.arange(q), heights, canvas.every_nth(q, _MOST_NUMBERS)
    ink = canvas.ink(axes)
    axes.bar(components, heights, color=canvas.BAR, width=0.75, label="the model")
    if bounds is not None:
        low, high = np.asarray(bounds, dtype=np.float64).reshape(q, 2).T
        axes.vlines(components, low, high, color=ink, linewidth=1.3, label="kernel PCA of all rows lies between")
        axes.plot(np.repeat(components, 2), np.stack([low, high], axis=1).ravel(), "_", color=ink, markersize=7)
        tops = np.maximum(heights, high)
        canvas.add_legend_below(axes)
    if explained is not None:
        shares = np.cumsum(np.asarray(explained, dtype=np.float64))
        # Among the narrow bars of many components, higher bars on the left would cover a centred number.
        left, alignment = (0.0, "center") if step == 1 else (0.4, "left")
        for i in range(0, q, step):
            at, style = (i - left, tops[i]), {"fontsize": "x-small", "color": ink, "ha": alignment}
            axes.annotate(f"{shares[i]:.0%}", at, (0, 3), textcoords="offset points", **style)
    axes.set_xticks(components[::step])
    title = "spectrum" if explained is None else "spectrum, with the share explained so far"
    canvas.finish(axes, title, "component", "variance, in units of k(x, x)")
    return axes
