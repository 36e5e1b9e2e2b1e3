"""The demonstration: a model that learns a simulated plant as it runs, and watches it."""

import time
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from streamkpca import plots
from streamkpca.command.detection import auroc, average_precision
from streamkpca.command.plant import BLOCK_ROWS, FAULT_KINDS, PlantBlock
from streamkpca.streaming import StreamingKernelPCA

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = npt.NDArray[np.float64]

_MEMORY_ROWS = 20_000
# Robust standard deviations above the median, both of the logarithm: a quantile would rise with the faults themselves.
_ALARM_DEVIATIONS = 4.0
# A fault counts as found when this share of its rows raises an alarm: a single row may do so by chance.
_FOUND_SHARE = 0.1
_PICTURE_ROWS = 4000


class Watch:
    """A model that scores rows of the plant before it learns them.

    Parameters
    ----------
    model : StreamingKernelPCA
        Unfitted.
    n_rows : int
        How many rows will come: an even selection of them is kept for the picture.

    Attributes
    ----------
    novelty, threshold : ndarray of shape (n,)
        Score of every row before it was learned, and where an alarm began then; NaN for the first block.
    faults : ndarray of shape (n,) of int8
        What was wrong, see `FAULT_KINDS`.
    seconds : float
        Time spent scoring, projecting and learning.

    Notes
    -----
    Prequential: every score comes from a model that has not seen the row, so one pass both learns and
    measures. The scores of all rows are kept for the measure, 17 bytes a row; the model itself stays bounded.
    """

    def __init__(self, model: StreamingKernelPCA, *, n_rows: int) -> None:
        self.model = model
        self.seconds = 0.0
        self._step = -(-n_rows // _PICTURE_ROWS)
        self._novelty: list[Array] = []
        self._threshold: list[Array] = []
        self._faults: list[npt.NDArray[np.int8]] = []
        self._picked: list[tuple[npt.NDArray[np.int64], Array, npt.NDArray[np.int8]]] = []
        self._n_rows = 0

    @property
    def novelty(self) -> Array:
        """Scores of all rows so far."""
        return np.concatenate(self._novelty) if self._novelty else np.empty(0)

    @property
    def threshold(self) -> Array:
        """Alarm thresholds of all rows so far."""
        return np.concatenate(self._threshold) if self._threshold else np.empty(0)

    @property
    def faults(self) -> npt.NDArray[np.int8]:
        """Faults of all rows so far."""
        return np.concatenate(self._faults) if self._faults else np.empty(0, dtype=np.int8)

    def take(self, block: PlantBlock) -> tuple[Array, Array]:
        """Score a block, then learn it.

        Parameters
        ----------
        block : PlantBlock
            The next rows.

        Returns
        -------
        projections : ndarray of shape (n, q)
        novelty : ndarray of shape (n,)
            NaN for the first block, before which nothing is known.
        """
        start = time.perf_counter()
        n = len(block.rows)
        if self._n_rows == 0:
            self.model.partial_fit(block.rows)
            novelty, level = np.full(n, np.nan), np.nan
            projections = self.model.transform(block.rows)
        else:
            novelty = self.model.reconstruction_error(block.rows)
            projections = self.model.transform(block.rows)
            self.model.partial_fit(block.rows)
            level = self._alarm_level()
        self.seconds += time.perf_counter() - start
        self._novelty.append(novelty)
        self._threshold.append(np.full(n, level))
        self._faults.append(block.faults)
        row = self._n_rows + np.arange(n)
        # Faults are rare and short: a selection of such a step would miss most of them.
        picked = (row % self._step == 0) | ((block.faults > 0) & (row % -(-self._step // 12) == 0))
        self._picked.append((row[picked], block.rows[picked], block.faults[picked]))
        self._n_rows += n
        return projections, novelty

    def picture(self) -> "Figure":
        """Draw novelty over time, projections and spectrum.

        Returns
        -------
        Figure

        Notes
        -----
        The projections are those of the model as it is now; those of `take` are what it thought at the time.
        """
        figure = plots.make_figure(width=11, height=8)
        figure.suptitle("A simulated plant, learned row by row and scored before each row was learned")
        grid = figure.add_gridspec(2, 2, height_ratios=(1.1, 1))
        plots.draw_novelty(
            self.novelty,
            threshold=self.threshold,
            labels=self.faults,
            label_names=FAULT_KINDS,
            ax=figure.add_subplot(grid[0, :]),
        )
        row, rows, faults = (np.concatenate(parts) for parts in zip(*self._picked, strict=True))
        plots.draw_projections(
            self.model.transform(rows),
            color=row,
            color_name="row",
            highlight=faults > 0,
            ax=figure.add_subplot(grid[1, 0]),
        )
        plots.draw_spectrum(
            self.model.eigenvalues_,
            explained=self.model.explained_variance_ratio_,
            ax=figure.add_subplot(grid[1, 1]),
        )
        return figure

    def _alarm_level(self) -> float:
        """Find where alarms begin now, from the scores of the rows just before."""
        recent = np.concatenate(self._novelty[-(_MEMORY_ROWS // BLOCK_ROWS) :])
        recent = np.log(recent[recent > 0])
        if not len(recent):
            return float("nan")
        middle = np.median(recent)
        deviation = 1.4826 * np.median(np.abs(recent - middle))
        return float(np.exp(middle + _ALARM_DEVIATIONS * deviation))

    def measure(self) -> list[tuple[str, str]]:
        """Tell how well the score found the faults.

        Returns
        -------
        list of (str, str)
            Names and values, ready to print.
        """
        novelty, faults, threshold = self.novelty, self.faults, self.threshold
        scored = np.isfinite(novelty)
        novelty, faults, threshold = novelty[scored], faults[scored], threshold[scored]
        if not faults.any():
            return [("faults", "none yet: the plant runs healthy at first; ask for more --rows")]
        with np.errstate(invalid="ignore"):
            alarms = novelty > threshold
        # A fault never crosses a block, and between two faults there is a healthy row.
        starts = np.flatnonzero(np.diff(faults, prepend=0) > 0)
        n_alarms = np.add.reduceat(alarms & (faults > 0), starts)
        found = n_alarms >= _FOUND_SHARE * np.add.reduceat(faults > 0, starts, dtype=int)
        facts = [
            ("area under ROC curve", f"{auroc(faults, novelty):.3f}"),
            (
                "average precision",
                f"{average_precision(faults, novelty):.3f} (chance {(faults > 0).mean():.3f})",
            ),
            ("faults found", f"{found.sum()} of {len(starts)} (alarm in {_FOUND_SHARE:.0%} of their rows)"),
        ]
        for kind in range(1, len(FAULT_KINDS)):
            ours = faults[starts] == kind
            if ours.any():
                mine = (faults == 0) | (faults == kind)
                area = auroc(faults[mine], novelty[mine])
                facts.append((f"  {FAULT_KINDS[kind]}", f"{found[ours].sum()} of {ours.sum()}, AUROC {area:.3f}"))
        facts.append(("false alarms", f"{alarms[faults == 0].mean():.2%} of healthy rows"))
        return facts
