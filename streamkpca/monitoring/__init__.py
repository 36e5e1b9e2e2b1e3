"""Monitoring: what a service runs on a stream of rows: rarities, alarms, events and lasting changes.

monitor : the class `Monitor`
judging : how rows become numbers, which are as rare as the threshold, and which of them may be learned
rarity : the views of a row, and how rare it is among healthy rows, and all so far; `_loops` are the compiled loops
learning : which of these are learned, which are held out, and the scales made of these
state : the state of a monitor beside its model, and its record in a file
causes : the features that explain an event
periods : lengths of time, and the phase of a cycle, as columns beside the features
bound : what keeps a promised rate of false alarms
events : runs of alarms, and what users said of them
lasting_changes : the cumulative sum (CUSUM) that finds and dates them
parameters : what checks each parameter, and which events are not reported
"""

from streamkpca.monitoring.bound import FalseAlarmBound
from streamkpca.monitoring.causes import Cause
from streamkpca.monitoring.events import Event
from streamkpca.monitoring.lasting_changes import Change
from streamkpca.monitoring.monitor import Monitor, MonitorRecord

__all__ = [
    "Cause",
    "Change",
    "Event",
    "FalseAlarmBound",
    "Monitor",
    "MonitorRecord",
]
