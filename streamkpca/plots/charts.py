"""Control charts: Hotelling's T^2 and the squared prediction error over time, with their limits."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from streamkpca.components.charts import ControlLimits
from streamkpca.plots.canvas import check_count, make_figure
from streamkpca.plots.novelty import draw_novelty

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_control_chart(
    t2: npt.ArrayLike,
    spe: npt.ArrayLike,
    *,
    limits: ControlLimits | tuple[float, float] | None = None,
    time: npt.ArrayLike | None = None,
    labels: npt.ArrayLike | None = None,
    axes: "Sequence[Axes] | None" = None,
) -> "tuple[Axes, Axes]":
    """Draw Hotelling's T^2 and the squared prediction error (SPE) over time, with their limits and alarms.

    Parameters
    ----------
    t2 : array-like of shape (n,)
        What a model's `hotelling_t2` returned.
    spe : array-like of shape (n,)
        Reconstruction errors of the same rows, beside the same number of axes.
    limits : ControlLimits, optional
        What a model's `control_limits` returned. Rows above a limit are alarms, ticks at the upper edge.
    time : array-like of shape (n,), optional
        Time of each row, ascending, as numbers or datetime64; its position if None.
    labels : array-like of shape (n,) of int, optional
        0 for healthy rows, another class for each kind of anomaly.
    axes : sequence of two Axes, optional
        Axes to draw on, for T^2 and SPE; those of a new figure, one above the other, if None.

    Returns
    -------
    tuple of two Axes

    Raises
    ------
    ValueError
        The statistics are not one-dimensional or differ in number, as times, labels or axes do.

    Notes
    -----
    Scales are logarithmic, and long series are drawn as ranges, as by `draw_novelty`.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import KernelPCA
    >>> from streamkpca.plots import draw_control_chart
    >>> rows = np.random.default_rng(0).normal(size=(100, 4))
    >>> model = KernelPCA(2, kernel="linear").fit(rows)
    >>> t2, spe = model.hotelling_t2(rows), model.reconstruction_error(rows, 2)
    >>> upper, lower = draw_control_chart(t2, spe, limits=model.control_limits())
    >>> upper.get_ylabel(), lower.get_ylabel()
    ('$T^2$', 'SPE')
    """
    where = "draw_control_chart"
    count = len(np.atleast_1d(t2))
    for values, name in ((spe, "values of SPE"), (time, "times"), (labels, "labels")):
        if values is not None:
            check_count(values, count, name, where=where)
    given = make_figure(height=5.5).subplots(2, sharex=True) if axes is None else list(axes)
    if len(given) != 2:
        raise ValueError(f"{where} expected 2 axes, for T^2 and SPE, but got {len(given)}; leave them out for new ones")
    parts = ((t2, "$T^2$"), (spe, "SPE"))
    for i, ((values, name), panel) in enumerate(zip(parts, given, strict=True)):
        draw_novelty(values, time=time, threshold=None if limits is None else limits[i], labels=labels, ax=panel)
        panel.set_title("control charts" if i == 0 else "", fontsize="medium")
        panel.set_ylabel(panel.get_ylabel().replace("novelty", name))
    upper, lower = given
    # The lower panel has the same names.
    upper.set_xlabel("")
    if (legend := upper.get_legend()) is not None:
        legend.remove()
    return upper, lower
