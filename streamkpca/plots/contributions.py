"""The features that add most to the novelty of a row, or of the rows of an event."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from streamkpca._core.parameters import check_integer
from streamkpca.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Room for the shares beside the longest bar, as a share of its length.
_ROOM = 0.12


def draw_contributions(
    contributions: npt.ArrayLike,
    *,
    names: Sequence[str] | None = None,
    n_features: int = 10,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw which features add most to the novelty of a row, with their shares.

    Parameters
    ----------
    contributions : array-like of shape (d,) or (n, d)
        A model's `contributions` to the novelty of a row; the mean of several rows is drawn.
    names : sequence of str, optional
        Names of the features; their positions if None.
    n_features : int
        Number of features to draw; the others are drawn as one bar.
    ax : Axes, optional
        Axes to draw on; those of a new figure if None.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        The contributions are not finite or negative, or have neither one dimension nor two; there is not one name for
        each feature; or `n_features` is less than 1.

    Examples
    --------
    >>> from streamkpca.plots import draw_contributions
    >>> axes = draw_contributions([0.1, 0.7, 0.2], names=["load", "heat", "flow"])
    >>> [label.get_text() for label in axes.get_yticklabels()]
    ['heat', 'flow', 'load']
    """
    where = "draw_contributions"
    n_features = check_integer("n_features", n_features, least=1, where=where)
    given = np.asarray(contributions, dtype=np.float64)
    if given.ndim not in (1, 2) or not given.size:
        raise ValueError(
            f"{where} expected contributions of shape (d,) or (n, d) but got {given.shape}; pass what a model's "
            "contributions returned"
        )
    # Infinity times 0 would be NaN, which is no number either.
    if not np.all((given >= 0.0) & (given < np.inf)):
        raise ValueError(f"{where} expected finite numbers of at least 0; pass what a model's contributions returned")
    rows = np.atleast_2d(given)
    lengths = rows.mean(axis=0)
    if names is not None:
        canvas.check_count(list(names), len(lengths), "names of features", where=where)
    axes = canvas.axes_or_new(ax)
    # Equal ones stay in the order of the features.
    order = np.argsort(-lengths, kind="stable")
    # A bar for all others takes as much room as one for the last of them.
    shown = order if len(order) <= n_features + 1 else order[:n_features]
    labels = [str(i) if names is None else str(names[i]) for i in shown]
    bars, colors = lengths[shown], [canvas.ALARM] * len(shown)
    if len(shown) < len(order):
        labels.append(f"{len(order) - len(shown)} others")
        bars, colors = np.append(bars, lengths[order[len(shown) :]].sum()), [*colors, canvas.FAINT]
    places = np.arange(len(bars))
    drawn, total = axes.barh(places, bars, color=colors, height=0.7), float(lengths.sum())
    shares = [f"{bar / total:.0%}" if total > 0.0 else "" for bar in bars]
    axes.bar_label(drawn, shares, padding=3, fontsize="x-small", color=canvas.ink(axes))
    axes.set_yticks(places, labels)
    axes.invert_yaxis()
    axes.set_xlim(0.0, (1.0 + _ROOM) * float(bars.max()) or 1.0)
    title = "contributions to the novelty" + (f", mean of {len(rows)} rows" if len(rows) > 1 else "")
    canvas.finish(axes, title, "contribution", "feature")
    return axes
