"""Monitoring: what a service runs on a stream of rows: scores, thresholds, alarms, events and lasting changes.

monitor : the class `Monitor`
scoring : how rows become numbers, and the models that score them
learning : which scored rows are learned, and the thresholds
state : the state of a monitor beside its models, and its record in a file
thresholds : scores of recent rows, and the level that few of them exceed; `_loops` are its compiled loops
causes : the features that explain an event
periods : the phase of a cycle, as columns beside the features
contract : the level that keeps a promised rate of false alarms
events : runs of alarms, and changes that last
rules : which events are not reported
"""

from streamkpca.monitoring.causes import Cause
from streamkpca.monitoring.contract import Contract
from streamkpca.monitoring.events import Change, Event
from streamkpca.monitoring.monitor import Monitor, MonitorRecord

__all__ = [
    "Cause",
    "Change",
    "Contract",
    "Event",
    "Monitor",
    "MonitorRecord",
]
