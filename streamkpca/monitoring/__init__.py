"""Monitoring: what a service runs on a stream of rows: rarities, alarms, events and lasting changes.

monitor : the class `Monitor`
judging : how rows become numbers, which are as rare as the threshold, and which of them may be learned
policy : how a monitor learns: the numbers that somebody chose
recent : the means and deviations of the last rows
rarity : the views of a row, and how rare it is among healthy rows; `_loops` are the compiled loops
alarms : rarities limited by all rows so far, and which rows begin events
learning : which of these are learned, which are held out, and the scales made of these
state : the state of a monitor beside its model, and its record in a file
causes : the features that explain an event
periods : lengths of time, and the phase of a cycle, as columns beside the features
events : runs of alarms, and what users said of them
report : the list of what was found
lasting_changes : the cumulative sum (CUSUM) that finds and dates them
parameters : what checks each parameter, and which events are not reported
"""

from streamkpca.monitoring.causes import Cause
from streamkpca.monitoring.events import Event
from streamkpca.monitoring.lasting_changes import Change
from streamkpca.monitoring.monitor import Monitor, MonitorRecord
from streamkpca.monitoring.report import Report, ReportLine

__all__ = [
    "Cause",
    "Change",
    "Event",
    "Monitor",
    "MonitorRecord",
    "Report",
    "ReportLine",
]
