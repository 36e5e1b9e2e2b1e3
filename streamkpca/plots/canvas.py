"""The parts that all pictures share: figures without global state, colours, legends, and a check."""

import io
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from streamkpca.rows.times import in_utc

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

Drawn = TypeVar("Drawn", "Axes", "Figure", "Figure | SubFigure")

# Okabe and Ito's colours, which colour-blind readers can tell apart, also in grey print. Lines of values are blue.
LINE = "#0072B2"
# Bars, and ranges of many values, are light blue.
BAR = "#56B4E9"
# What is expected is green.
GOOD = "#009E73"
# The rows of an event are shaded yellow.
EVENT = "#F0E442"
# The colours of groups of events, which are beside blue lines.
GROUP_COLORS = ("#D55E00", GOOD, "#CC79A7", "#E69F00", "#000000", EVENT)
# More points fill paper and memory without showing more.
MOST_POINTS = 6000

# Inches that twelve dates need, matplotlib's most; where there are fewer, 3 to 7 dates are written.
_WIDE = 5.0
_LEGEND_GAP = 0.42  # inches below the axes: beneath the tick labels and the name of the axis


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
    >>> from streamkpca.plots import draw_novelty, make_figure
    >>> len(draw_novelty([0.1, 0.3], ax=make_figure().add_subplot()).lines)
    1
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ImportError(f'pictures need {error.name}; pip install "streamkpca[plots]"') from error
    return Figure(figsize=(width, height), layout="constrained")


def axes_or_new(ax: "Axes | None") -> "Axes":
    """Return the given axes, or those of a new figure, which notebooks show."""
    if ax is not None:
        return ax
    figure = make_figure()
    return show(figure.add_subplot(), figure)


def show(picture: Drawn, figure: "Figure") -> Drawn:
    """Let notebooks show a picture as the last line of a cell, though its figure belongs to no window."""
    picture.__dict__["_repr_png_"] = partial(_png_of, figure)
    return picture


def _png_of(figure: "Figure") -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=100)
    return content.getvalue()


def ink(axes: "Axes") -> Any:
    """Return the colour of text and lines beside the data: that of text in the style that the axes were made in."""
    return axes.title.get_color()


def on_background(colors: Sequence[Any], axes: "Axes") -> list[Any]:
    """Replace black by the colour of text, which shows on a dark background too."""
    return [ink(axes) if color == "#000000" else color for color in colors]


def finish(axes: "Axes", title: str, xlabel: str, ylabel: str) -> None:
    """Set the title and the names of the axes, hide the top and right spines, and write dates."""
    from matplotlib import dates as untyped_dates

    dates: Any = untyped_dates
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel(xlabel)
    # A name may hold dollars.
    axes.set_ylabel(ylabel, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(which="both", labelsize="small")
    if isinstance(locator := axes.xaxis.get_major_locator(), dates.AutoDateLocator) and np.isfinite(axes.dataLim.x0):
        # Others would overlap, or leave the day out. What ticks leave out is written once, of the first time: in a
        # corner, this one would write that of the last tick over the name of the axis.
        if axes.bbox.width < _WIDE * axes.figure.dpi:
            axes.xaxis.set_major_locator(locator := dates.AutoDateLocator(minticks=3, maxticks=7))
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, show_offset=False))
        axes.set_xlabel(xlabel and f"{xlabel}, from {dates.num2date(axes.dataLim.x0):%Y-%m-%d %H:%M}")


def mark_alone(values: Any) -> dict[str, Any]:
    """Mark the values between gaps: a line through one point is not seen."""
    known = np.pad(np.isfinite(values), 1)
    alone = np.flatnonzero(known[1:-1] & ~known[:-2] & ~known[2:])
    return {"marker": "." if len(alone) else "", "markevery": alone.tolist()}


def shade(axes: "Axes", first: Any, last: Any, label: str | None) -> None:
    """Shade a span of rows; the edge keeps a single row visible."""
    axes.axvspan(first, last, facecolor=EVENT, edgecolor=EVENT, linewidth=0.5, alpha=0.4, zorder=0, label=label)


def add_legend_below(axes: "Axes") -> None:
    """Put the legend below axes of any height, where it hides no data."""
    from matplotlib.transforms import ScaledTranslation

    axes.legend(
        fontsize="x-small",
        ncols=6,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        bbox_transform=axes.transAxes + ScaledTranslation(0.0, -_LEGEND_GAP, axes.figure.dpi_scale_trans),
        frameon=False,
        markerscale=1.5,
    )


def every_nth(n: int, most: int) -> int:
    """Return the step that selects evenly at most `most` of n items."""
    return max(-(-n // most), 1)


def positions_or_times(n: int, time: Any, *, first: int = 0) -> Any:
    """Return what n rows are drawn over: their times as numbers or dates in UTC, or their positions without any."""
    if time is None:
        return np.arange(first, first + n)
    check_count(time, n, "times")
    times = in_utc(np.asarray(time))
    if times.dtype.kind not in "Miuf":
        raise TypeError(f"expected times as numbers or dates but got {times.dtype} values; pass datetime64")
    return times


def check_count(values: Any, n: int, name: str) -> None:
    """Refuse values that are not n in number."""
    if np.shape(values)[:1] != (n,):
        raise ValueError(f"expected {n} {name} but got an array of shape {np.shape(values)}; give one for each")
