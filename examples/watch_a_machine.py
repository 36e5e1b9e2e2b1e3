"""Watch a machine
===============

A compressor is read once a minute. Three sensors fail within a week, and no limit would notice: every reading stays
in the range that the sensor has in each cycle. A `Monitor` finds the faults and names the sensors.

It needs the extra ``plots``.
"""

import numpy as np

from streamkpca import plots
from streamkpca.monitoring import Monitor

# %%
# The rows
# --------
#
# Five sensors depend on one load, which goes up and down every 45 minutes, more or less. Each has its own noise.

SENSORS = ["speed", "flow", "pressure", "power", "temperature"]

random = np.random.default_rng(7)
times = np.datetime64("2026-03-02") + np.arange(7 * 24 * 60) * np.timedelta64(1, "m")
phase = np.arange(len(times)) / 7 + np.cumsum(random.normal(scale=0.05, size=len(times)))
load = 0.6 + 0.3 * np.sin(phase)
rows = np.column_stack([1200 + 600 * load, 80 * load, 2 + 5 * load**2, 5 + 30 * load**2, 35 + 25 * load])
rows += random.normal(scale=[6, 0.8, 0.08, 0.4, 0.4], size=rows.shape)


def hours(start, end):
    """Return the positions of the rows of some hours."""
    return np.flatnonzero((times >= np.datetime64(start)) & (times < np.datetime64(end)))


stuck = hours("2026-03-04T09", "2026-03-04T11")
late = hours("2026-03-06T02", "2026-03-06T04")
loose = hours("2026-03-07T14", "2026-03-07T16")
rows[stuck, 1] = 48  # the flow sensor sticks
rows[late, 4] = rows[late - 8, 4]  # the thermometer is fouled, and eight minutes late
rows[loose, 2] = random.uniform(3, 5, len(loose))  # the pressure sensor has a loose contact

# %%
# The monitor
# -----------
#
# It scores each row by what it has learned from those before, and then learns it unless it is an alarm: nothing is
# trained beforehand. A service calls `update` with each batch that arrives; however the stream is cut, the result is
# the same.

monitor = Monitor(end_after=30)
record = monitor.update(rows, time=times)

# %%
# The faults
# ----------
#
# Alarms with less than half an hour between them make an event. The severity of an event tells in how many healthy rows
# one as odd is found. The report lists those that are rarer than chance brings in so many rows, and the features that
# failed: with their value, and the value that the others let expect.

report = monitor.report()
print(report)
faults = sorted((line.events[line.worst] for line in report.lines), key=lambda event: event.start)

# %%
# The picture
# -----------
#
# Above, the sensors from two hours before their fault to two hours after, and what was expected of them. Below, the
# rarity of the rows of the week.

figure = plots.make_figure(width=10, height=6)
panels = figure.subplot_mosaic([["fault 0", "fault 1", "fault 2"], ["rarity"] * 3])
for i, event in enumerate(faults):
    sensor, shown, panel = event.features[0].feature, slice(event.start - 120, event.end + 120), panels[f"fault {i}"]
    expected = monitor.model.expected(rows[shown], sensor)[:, 0]
    panel.plot(times[shown], expected, color="#E69F00", linewidth=3, label="expected")
    panel.plot(times[shown], rows[shown, sensor], linewidth=1, label="measured")
    panel.axvspan(event.start_time, event.end_time, color="#F0E442", alpha=0.4)
    panel.set(title=SENSORS[sensor], xlabel=str(event.start_time), xticks=[])
figure.legend(*panel.get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
plots.draw_novelty(
    record.rarity, name="rarity", time=times, threshold=record.threshold, events=faults, ax=panels["rarity"]
)
figure.savefig("watch_a_machine.png", dpi=110)
