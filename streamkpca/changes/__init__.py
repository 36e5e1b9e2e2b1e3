"""Changes of distribution: a detector that knows healthy rows, and how rarely it is wrong about such rows.

detector : the class `ChangeDetector`, and its record in a file
chart : moving averages of what rows are like, against those of healthy rows; `_loops` are its compiled loops
run_lengths : after how many healthy rows a statistic passes a level
shifts : the means, spreads and correlations that moved with a change
"""

from streamkpca.changes.detector import ChangeDetector, ChangeRecord, DistributionChange
from streamkpca.changes.shifts import Shift

__all__ = ["ChangeDetector", "ChangeRecord", "DistributionChange", "Shift"]
