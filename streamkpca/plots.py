"""Pictures of what a model has learned. Each takes the Axes to draw on, or makes its own, and returns it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = npt.NDArray[np.float64]

# Okabe and Ito's colours: told apart by colour-blind readers and on grey prints.
_LINE, _BAR, _ALARM = "#0072B2", "#56B4E9", "#D55E00"
_GROUP_COLORS = ("#D55E00", "#009E73", "#CC79A7", "#E69F00", "#000000", "#F0E442")
# More points than this fill the paper and the memory without showing more.
_MOST_BINS = 1500
_MOST_POINTS = 6000


def make_figure(*, width: float = 7.0, height: float = 4.5) -> "Figure":
    """Make an empty figure that belongs to no window and no global state.

    Parameters
    ----------
    width, height : float
        Size in inches.

    Returns
    -------
    Figure
        Save it with ``figure.savefig(path)``.

    Raises
    ------
    ImportError
        matplotlib is not installed.

    Examples
    --------
    >>> figure = make_figure()
    >>> axes = draw_spectrum([3.0, 1.0], ax=figure.add_subplot())
    >>> len(axes.patches)
    2
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ImportError(f'pictures need {error.name}; pip install "streamkpca[plots]"') from error
    return Figure(figsize=(width, height), layout="constrained")


def draw_spectrum(
    eigenvalues: npt.ArrayLike, *, explained: npt.ArrayLike | None = None, ax: "Axes | None" = None
) -> "Axes":
    """Draw the variance along each axis, and what the first ones explain together.

    Parameters
    ----------
    eigenvalues : array-like of shape (q,)
        A model's `eigenvalues_`.
    explained : array-like of shape (q,), optional
        A model's `explained_variance_ratio_`; its running sum is written over the bars.
    ax : Axes, optional
        Where to draw; a new figure's if None.

    Returns
    -------
    Axes

    Examples
    --------
    >>> draw_spectrum([3.0, 1.0], explained=[0.6, 0.2]).get_ylabel()
    'variance'
    """
    axes = _axes(ax)
    heights = np.asarray(eigenvalues, dtype=np.float64)
    bars = axes.bar(np.arange(len(heights)), heights, color=_BAR, width=0.75)
    if explained is not None:
        shares = np.cumsum(np.asarray(explained, dtype=np.float64))
        axes.bar_label(bars, [f"{share:.0%}" for share in shares], fontsize="x-small", color="#333333")
        axes.set_title("spectrum, with the share explained so far", fontsize="medium")
    else:
        axes.set_title("spectrum", fontsize="medium")
    axes.set_xticks(np.arange(0, len(heights), max(1, len(heights) // 10)))
    axes.set_xlabel("component")
    axes.set_ylabel("variance")
    _clean(axes)
    return axes


def draw_projections(
    projections: npt.ArrayLike,
    *,
    components: tuple[int, int] = (0, 1),
    color: npt.ArrayLike | None = None,
    color_name: str = "row",
    groups: npt.ArrayLike | None = None,
    group_names: Sequence[str] | None = None,
    highlight: npt.ArrayLike | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw rows in the plane of two components, coloured by time, by a value, or by group.

    Parameters
    ----------
    projections : array-like of shape (n, q)
        What `transform` returned. Of very many rows an even selection is drawn.
    components : (int, int)
        The components on the two axes.
    color : array-like of shape (n,), optional
        A value for each row; the row's position if None and there are no groups.
    color_name : str
        What the colour means.
    groups : array-like of shape (n,), optional
        A class for each row; overrides `color`.
    group_names : sequence of str, optional
        What each group is called in the legend, in ascending order of the groups.
    highlight : array-like of shape (n,) of bool, optional
        Rows to mark, never left out by the selection.
    ax : Axes, optional
        Where to draw; a new figure's if None.

    Returns
    -------
    Axes

    Examples
    --------
    >>> draw_projections([[0.0, 1.0], [1.0, 0.0]], groups=[3, 5]).get_legend().get_texts()[1].get_text()
    '5'
    """
    axes = _axes(ax)
    points = np.asarray(projections, dtype=np.float64)[:, list(components)]
    step = -(-len(points) // _MOST_POINTS)
    size = 4 if len(points) > _MOST_POINTS // 4 else 14
    if groups is not None:
        classes, which = np.unique(np.asarray(groups), return_inverse=True)
        names = [str(value) for value in classes] if group_names is None else list(group_names)
        palette = _palette(len(classes))
        for i, name in enumerate(names):
            part = points[which == i][::step]
            axes.scatter(part[:, 0], part[:, 1], s=size, color=palette[i], label=name, linewidths=0)
        axes.legend(fontsize="x-small", markerscale=2, ncols=1 + len(names) // 6, framealpha=0.85)
    else:
        values = np.arange(len(points)) if color is None else np.asarray(color, dtype=np.float64)
        dots = axes.scatter(
            points[::step, 0],
            points[::step, 1],
            c=values[::step],
            s=size,
            cmap="viridis",
            linewidths=0,
            rasterized=True,
        )
        bar = axes.figure.colorbar(dots, ax=axes, label=color_name, shrink=0.9, pad=0.01)
        bar.ax.tick_params(labelsize="small")
    if highlight is not None:
        marked = points[np.asarray(highlight, dtype=bool)]
        marked = marked[:: -(-len(marked) // _MOST_POINTS) or 1]
        axes.scatter(marked[:, 0], marked[:, 1], s=size + 2, color=_ALARM, linewidths=0, label="anomalous")
        axes.legend(fontsize="x-small", markerscale=2, framealpha=0.85)
    axes.set_xlabel(f"component {components[0]}")
    axes.set_ylabel(f"component {components[1]}")
    axes.set_title("projections", fontsize="medium")
    _clean(axes)
    return axes


def draw_novelty(
    novelty: npt.ArrayLike,
    *,
    time: npt.ArrayLike | None = None,
    threshold: npt.ArrayLike | None = None,
    labels: npt.ArrayLike | None = None,
    label_names: Sequence[str] = ("healthy", "anomalous"),
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the novelty score over time, with its threshold, the alarms and the known anomalies.

    Parameters
    ----------
    novelty : array-like of shape (n,)
        Scores; the higher, the more novel. NaN where a row has none.
    time : array-like of shape (n,), optional
        When each row came, ascending; its position if None.
    threshold : float or array-like of shape (n,), optional
        Where alarms begin; may change from row to row.
    labels : array-like of shape (n,) of int, optional
        0 for healthy rows, another class for each kind of anomaly.
    label_names : sequence of str
        What the classes are called.
    ax : Axes, optional
        Where to draw; a new figure's if None.

    Returns
    -------
    Axes

    Notes
    -----
    Of a long series the range and the median of each of 1,500 equal pieces is drawn, so no peak is lost.

    Examples
    --------
    >>> draw_novelty([0.1, 0.2, 0.9], threshold=0.5, labels=[0, 0, 1]).get_ylabel()
    'novelty'
    """
    axes = _axes(ax)
    scores = np.asarray(novelty, dtype=np.float64)
    when = np.arange(len(scores)) if time is None else np.asarray(time)
    classes = np.zeros(len(scores), dtype=int) if labels is None else np.asarray(labels).astype(int)
    known = np.isfinite(scores)
    positive = scores[known & (scores > 0)]
    floor = float(positive.min()) if len(positive) else 1e-12
    shown = np.maximum(scores, floor)
    axes.set_yscale("log")
    _draw_series(axes, when, np.where(classes == 0, shown, np.nan), label_names[0] if classes.any() else None)
    for i, kind in enumerate(np.unique(classes[classes > 0])):
        part = known & (classes == kind)
        color = _GROUP_COLORS[i % len(_GROUP_COLORS)]
        name = label_names[kind] if kind < len(label_names) else str(kind)
        axes.scatter(when[part], shown[part], s=5, color=color, linewidths=0, label=name, zorder=3)
    if threshold is not None:
        level = np.broadcast_to(np.asarray(threshold, dtype=np.float64), scores.shape)
        axes.plot(when, level, color="black", linewidth=0.9, linestyle="--", label="threshold", zorder=4)
        with np.errstate(invalid="ignore"):
            alarms = known & (scores > level)
        if alarms.any():
            axes.plot(
                _spread(when[alarms]),
                np.full(len(_spread(when[alarms])), 0.985),
                linestyle="none",
                marker="|",
                markersize=7,
                color="black",
                alpha=0.6,
                transform=axes.get_xaxis_transform(),
                label="alarm",
            )
    if classes.any() or threshold is not None:
        axes.legend(
            fontsize="x-small",
            ncols=6,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.14),
            frameon=False,
            markerscale=2,
        )
    axes.margins(x=0.005)
    axes.set_xlabel("row" if time is None else "time")
    axes.set_ylabel("novelty")
    axes.set_title("novelty over time", fontsize="medium")
    _clean(axes)
    return axes


def _draw_series(axes: "Axes", when: npt.NDArray[Any], values: Array, label: str | None) -> None:
    if len(values) <= 2 * _MOST_BINS:
        axes.plot(when, values, color=_LINE, linewidth=0.7, label=label)
        return
    edges = np.linspace(0, len(values), _MOST_BINS + 1).astype(int)
    pieces = [part[np.isfinite(part)] for part in np.split(values, edges[1:-1])]
    low, middle, high = np.array([(p.min(), np.median(p), p.max()) if len(p) else (np.nan,) * 3 for p in pieces]).T
    axes.fill_between(when[edges[:-1]], low, high, color=_BAR, alpha=0.55, linewidth=0, label=label)
    axes.plot(when[edges[:-1]], middle, color=_LINE, linewidth=0.8)


def _spread(when: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Thin out marks that would land on each other."""
    return when[:: -(-len(when) // _MOST_BINS) or 1]


def _palette(n: int) -> list[Any]:
    from matplotlib import colormaps

    if n <= 10:
        return [colormaps["tab10"](i) for i in range(n)]
    return [colormaps["turbo"](i / max(n - 1, 1)) for i in range(n)]


def _axes(ax: "Axes | None") -> "Axes":
    return make_figure().add_subplot() if ax is None else ax


def _clean(axes: "Axes") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize="small")
