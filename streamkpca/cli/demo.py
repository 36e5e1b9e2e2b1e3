"""The demonstration: a simulated machine with faults, written as a file, and what `watch` finds there."""

from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import numpy.typing as npt

from streamkpca.cli.reading import write_line
from streamkpca.tables import Writer

SENSORS = ("speed", "flow", "pressure", "power", "temperature")
_SEED = 7
_MINUTES = 7 * 24 * 60


class Week(NamedTuple):
    """A week of a machine, a row a minute: times and faults (n,), and readings (n, 5) in the order of `SENSORS`."""

    times: npt.NDArray[np.datetime64]
    readings: npt.NDArray[np.float64]
    is_fault: npt.NDArray[np.bool_]


def simulate_week() -> Week:
    """Simulate a compressor whose five sensors depend on one load, and three of which fail for two hours each.

    Every reading stays in the range that the sensor has in each cycle of some 45 minutes: the flow sensor sticks, the
    thermometer is eight minutes late, and the pressure sensor has a loose contact.

    >>> week = simulate_week()
    >>> week.readings.shape, int(week.is_fault.sum())
    ((10080, 5), 360)
    """
    random = np.random.default_rng(_SEED)
    times = np.datetime64("2026-03-02") + np.arange(_MINUTES) * np.timedelta64(1, "m")
    phase = np.arange(_MINUTES) / 7 + np.cumsum(random.normal(scale=0.05, size=_MINUTES))
    load = 0.6 + 0.3 * np.sin(phase)
    rows = np.column_stack([1200 + 600 * load, 80 * load, 2 + 5 * load**2, 5 + 30 * load**2, 35 + 25 * load])
    rows += random.normal(scale=[6, 0.8, 0.08, 0.4, 0.4], size=rows.shape)
    stuck, late, loose = (
        np.flatnonzero((times >= np.datetime64(f"2026-03-{start}")) & (times < np.datetime64(f"2026-03-{end}")))
        for start, end in (("04T09", "04T11"), ("06T02", "06T04"), ("07T14", "07T16"))
    )
    rows[stuck, 1] = 48
    rows[late, 4] = rows[late - 8, 4]
    rows[loose, 2] = random.uniform(3, 5, len(loose))
    return Week(times, rows, np.isin(np.arange(_MINUTES), [stuck, late, loose]))


def run_demo(watch: click.Command, out: str) -> None:
    """Write the week as CSV, and watch it as a user would."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    week, file = simulate_week(), str(folder / "machine.csv")
    readings = dict(zip(SENSORS, week.readings.round(3).T, strict=True))
    with Writer(file) as writer:
        writer.write({"time": week.times, **readings, "fault": week.is_fault.astype(int)})
    pages = ["--plot", str(folder / "picture.png"), "--report", str(folder / "report.html")]
    arguments = [file, "--labels", "fault", *pages]
    click.echo(f"A simulated week of a machine. As you would:\n  {write_line(['watch', *arguments])}", err=True)
    with watch.make_context("watch", arguments, parent=click.get_current_context()) as context:
        watch.invoke(context)
