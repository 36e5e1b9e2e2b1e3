"""Monitoring: what a service runs on a stream of rows: scores, thresholds, alarms, events and lasting changes.

monitor : the class `Monitor`
thresholds : scores of recent rows, and the level that few of them exceed
causes : the features that explain an event
periods : the phase of a cycle, as columns beside the features
windows : statistics of the last rows, and a model of them for each length
contract : the level that keeps a promised rate of false alarms
events : runs of alarms, and changes that last
saving : saving both of them with their model
changes : the class `ChangeDetector`, of changes of distribution
"""

from streamkpca.monitoring.causes import Cause
from streamkpca.monitoring.changes import ChangeDetector, ChangeRecord, DistributionChange, Shift
from streamkpca.monitoring.contract import Contract
from streamkpca.monitoring.events import Change, Event
from streamkpca.monitoring.monitor import Monitor, MonitorRecord

__all__ = [
    "Cause",
    "Change",
    "ChangeDetector",
    "ChangeRecord",
    "Contract",
    "DistributionChange",
    "Event",
    "Monitor",
    "MonitorRecord",
    "Shift",
]
