"""Variances along the axes, and the effect of the noise variance on the atoms that they use."""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from streamkpca.components.weights import SparsityPath
from streamkpca.plots.canvas import (
    ALARM,
    BAR,
    LINE,
    Array,
    add_legend_below,
    axes_or_new,
    check_shape,
    every_nth,
    finish,
    ink,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
        A model's `eigenvalue_bounds_`: the eigenvalues of kernel PCA of all rows lie between them. They are drawn as
        ranges. Bars may end below their range: axes made of few rows have less variance than the best ones.
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
    axes = axes_or_new(ax)
    components, q = np.arange(len(heights)), len(heights)
    tops = heights
    step = every_nth(q, _MOST_NUMBERS)
    axes.bar(components, heights, color=BAR, width=0.75, label="the model")
    if bounds is not None:
        low, high = check_shape(bounds, (q, 2), "bounds", where=where, remedy="pass a model's eigenvalue_bounds_").T
        axes.vlines(components, low, high, color=ink(axes), linewidth=1.3, label="kernel PCA of all rows lies between")
        axes.plot(np.repeat(components, 2), np.stack([low, high], axis=1).ravel(), "_", color=ink(axes), markersize=7)
        tops = np.maximum(heights, high)
        add_legend_below(axes)
    title = "spectrum"
    if explained is not None:
        shares = check_shape(
            explained, (q,), "explained", where=where, remedy="pass a model's explained_variance_ratio_"
        ).cumsum()
        for i in range(0, q, step):
            axes.annotate(
                f"{shares[i]:.0%}",
                # Among the narrow bars of many components, higher bars on the left would cover a centred number.
                (i, tops[i]) if step == 1 else (i - 0.4, tops[i]),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center" if step == 1 else "left",
                fontsize="x-small",
                color=ink(axes),
            )
        title += ", with the share explained so far"
    axes.set_xticks(components[::step])
    finish(axes, title, "component", "variance, in units of k(x, x)")
    return axes


def draw_sparsity_path(path: SparsityPath, *, noise_variance: float | None = None, ax: "Axes | None" = None) -> "Axes":
    """Draw how a larger noise variance leaves fewer active atoms and a larger reconstruction error.

    Parameters
    ----------
    path : SparsityPath
        What a model's `sparsity_path` returned.
    noise_variance : float, optional
        A model's `noise_variance_`, marked as the one in use if it is above 0.
    ax : Axes, optional
        Axes to draw on; those of a new figure if None. They get a second vertical axis on the right.

    Returns
    -------
    Axes
        Those of the number of active atoms, on the left.

    Notes
    -----
    Open markers show fits that did not converge.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca.plots import draw_sparsity_path
    >>> from streamkpca.components.weights import sparsity_path
    >>> axes = draw_sparsity_path(sparsity_path(np.eye(3), np.diag([4.0, 2.0, 1.0]), [5.0, 3.0, 1.5]))
    >>> axes.lines[0].get_ydata()
    array([2, 1, 0])
    """
    axes = axes_or_new(ax)
    from matplotlib.ticker import MaxNLocator

    order = np.argsort(path.noise_variances, kind="stable")
    noise, converged = path.noise_variances[order], path.converged[order]
    axes.set_xscale("log")
    right = axes.twinx()
    for side, values, color, marker in (
        (axes, path.n_active[order], LINE, "o"),
        (right, path.mean_reconstruction_errors[order], ALARM, "s"),
    ):
        _draw_line(side, noise, values, converged, color, marker)
        side.set_ylim(bottom=0.0)
        side.margins(y=0.08)
    # None and 0 are not on a logarithmic axis.
    if noise_variance:
        axes.axvline(noise_variance, color=ink(axes), linewidth=0.9, linestyle="--")
        axes.annotate(
            "in use",
            (noise_variance, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(3, -2),
            textcoords="offset points",
            va="top",
            fontsize="x-small",
            color=ink(axes),
        )
    finish(axes, "sparsity path", "noise variance, in units of k(x, x)", "active atoms")
    finish(right, "", "", "mean reconstruction error, in units of k(x, x)")
    right.spines["right"].set_visible(True)
    for side, color in ((axes, LINE), (right, ALARM)):
        side.yaxis.label.set_color(color)
        side.tick_params(axis="y", colors=color)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    return axes


def _draw_line(
    axes: "Axes",
    noise: Array,
    values: npt.NDArray[np.generic],
    converged: npt.NDArray[np.bool_],
    color: str,
    marker: str,
) -> None:
    axes.plot(noise, values, color=color, linewidth=1.2)
    axes.plot(noise[converged], values[converged], marker, color=color, markersize=4)
    axes.plot(
        noise[~converged], values[~converged], marker, color=color, markersize=4, markerfacecolor=axes.get_facecolor()
    )
