"""Changes of distribution: a detector that knows healthy rows, and how rarely it is wrong about such rows.

detector : the class `ChangeDetector`, and its record in a file
chart : exponentially weighted moving averages (EWMA) of columns, and after how many healthy rows these pass a level
columns : what a chart sees of a row
_loops : the compiled loops of both
autocorrelation : how long rows stay correlated, and streams that are drawn of them all the same
shifts : the means, spreads and correlations that moved with a change

Cumulative sums (CUSUM) are elsewhere: that of rare rows is `monitoring.lasting_changes.Cusum`, and that of blocks which
the atoms explain worse is `stream.summary.ResidualTrend`.
"""

from streamkpca.changes.detector import ChangeDetector, ChangeRecord, DistributionChange
from streamkpca.changes.shifts import Shift

__all__ = ["ChangeDetector", "ChangeRecord", "DistributionChange", "Shift"]
