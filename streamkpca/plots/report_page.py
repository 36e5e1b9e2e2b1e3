"""What a monitor found, as one page for a browser that asks no server for anything."""

import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.files import SHARED, FileName, replace_file
from streamkpca._core.parameters import check_integer
from streamkpca.errors import name_errors
from streamkpca.monitoring.events import Event
from streamkpca.monitoring.report import Facts, Report, ReportLine
from streamkpca.plots import canvas
from streamkpca.rows.times import as_times, without_times
from streamkpca.rows.validation import check_parts

if TYPE_CHECKING:
    from streamkpca.monitoring import Monitor

# Stretches of all rows of which extremes are drawn: about two for each pixel of a wide screen.
_STRETCHES = 2000
# Rows on either side of an event that are drawn one by one, and the most of an event itself.
_AROUND = 50
_MOST_OF_EVENT = 300
# Events of the table, those that are drawn row by row, features of each, and features of the page.
_MOST_LINES = 200
_MOST_EVENTS = 30
_PANELS = 3
_MOST_FEATURES = 30


class _Stream(NamedTuple):
    """Rows (n, d) of a monitor's stream from the position `first` on, their times or positions `when` (n,).

    They are drawn at `x` (n,), in milliseconds for dates, as browsers count.
    """

    monitor: "Monitor"
    rows: npt.NDArray[Any]
    when: npt.NDArray[Any]
    x: npt.NDArray[np.float64]
    has_times: bool
    names: list[str]
    first: int

    @classmethod
    def take(cls, monitor: "Monitor", rows: Any, time: Any, names: Sequence[str] | None, first: int | None) -> Self:
        """Take rows, and times or the name of their column, as `Monitor.update` does."""
        rows, time = without_times(rows, time)
        n, d, learned = len(rows), monitor.n_features_in_, getattr(monitor, "feature_names_in_", None)
        first = monitor.n_rows_ - n if first is None else check_integer("first", first, least=0)
        if not 0 <= first <= monitor.n_rows_ - n:
            raise ValueError(
                f"expected rows among the {monitor.n_rows_:,} of the monitor but got {n:,} from row {first:,} on; pass "
                "rows that it has judged, and first= if they are not the latest"
            )
        checked = check_parts(rows, d, learned, finite=False)
        known = [f"feature {j}" for j in range(d)] if learned is None else [str(name) for name in learned]
        known = known if names is None else [str(name) for name in names]
        if len(known) != d:
            raise ValueError(f"expected {d} names, one for each feature, but got {len(known)}")
        when = np.arange(first, first + n) if time is None else as_times(time, n, None)[0]
        is_dated = when.dtype.kind == "M"
        x = (when.astype("M8[us]").astype(np.int64) / 1000.0) if is_dated else when.astype(np.float64)
        return cls(monitor, checked[0:n], when, x, time is not None, known, first)

    @property
    def is_dated(self) -> bool:
        """Whether rows have dates."""
        return self.when.dtype.kind == "M"

    def write_ends(self) -> str:
        """Write the times of the first and the last row."""
        if not len(self.when):
            return ""
        if self.is_dated:
            begin, end = np.datetime_as_string(self.when[[0, -1]], unit="s")
            return f"{begin} to {end}. ".replace("T", " ")
        what = "" if self.has_times else "row "
        return f"{what}{self.when[0]:,} to {what}{self.when[-1]:,}. "

    def find(self, feature: str | int) -> int:
        """Return the column of a feature of an event."""
        if isinstance(feature, int):
            return feature
        return [*self.monitor.feature_names_in_].index(feature)

    def span_of(self, event: Event) -> tuple[int, int] | None:
        """Return the rows of an event, or None if some are missing."""
        begin, end = event.start - self.first, event.end - self.first
        return (begin, end) if 0 <= begin < end <= len(self.rows) else None

    def expect(self, event: Event) -> list[Facts]:
        """Return, for the first features of an event, their column and the range that was expected around it."""
        if (span := self.span_of(event)) is None:
            return []
        shown = slice(max(span[0] - _AROUND, 0), min(span[1], span[0] + _MOST_OF_EVENT) + _AROUND)
        times = self.when[shown] if self.monitor.period is not None and self.has_times else None
        stacked = self.monitor.stack(self.rows[shown], first=self.first + shown.start, time=times)
        x, panels = self.x[shown].tolist(), []
        for cause in event.features[:_PANELS]:
            column, part = self.find(cause.feature), stacked.copy()
            part[:, column] = np.nan
            _, low, high = self.monitor.model.expected(part, column).T
            panels.append({"column": column, "x": x, "low": _list(low), "high": _list(high)})
        return panels


@name_errors
def write_report(
    monitor: "Monitor",
    path: FileName,
    *,
    rows: Any,
    time: npt.ArrayLike | None = None,
    rarity: npt.ArrayLike | None = None,
    first: int | None = None,
    names: Sequence[str] | None = None,
    report: Report | None = None,
    title: str = "Report",
    notes: Sequence[str] = (),
    command: str | None = None,
) -> None:
    """Write a page with the events of a monitor: a table, and the sensors of each event with what was expected.

    Parameters
    ----------
    monitor : Monitor
        Its model, as it is now, says what is expected.
    path : str or path
        The file, which is replaced whole or not at all.
    rows : array-like of shape (n, d)
        Rows of the stream. Extremes of stretches are drawn, and beside the first 30 events every row.
    time : array-like of shape (n,) or str, optional
        Times of the rows, or their column in a table; positions are drawn if None.
    rarity : array-like of shape (n,), optional
        Rarities of the rows, as `Monitor.update` returns them; drawn above the sensors.
    first : int, optional
        Position in the stream of the first of these rows; by default they are the latest.
    names : sequence of str, optional
        Names of the features, by default those of the columns of the rows.
    report : Report, optional
        What is told, by default the monitor's `report()`.
    title : str
        The name of the page, such as that of the file of rows.
    notes : sequence of str
        What else the page tells above the events, a paragraph each.
    command : str, optional
        A command that watches these rows with a saved model; the page shows how it accepts or confirms an event.

    Raises
    ------
    ImportError
        Bokeh is not installed.
    ValueError
        There is not one time or one rarity a row, or the monitor has judged fewer rows, or rows of other names.

    Examples
    --------
    >>> import tempfile
    >>> from streamkpca.monitoring import Monitor
    >>> from streamkpca.plots import write_report
    >>> random = np.random.default_rng(0)
    >>> rows = np.repeat(random.normal(size=(1500, 1)), 3, axis=1) + 0.1 * random.normal(size=(1500, 3))
    >>> monitor = Monitor()
    >>> record = monitor.update(rows)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "report.html"
    ...     write_report(monitor, path, rows=rows, rarity=record.rarity)
    ...     path.read_text().splitlines()[0]
    '<!DOCTYPE html>'
    """
    try:
        from bokeh.embed import components
        from bokeh.resources import Resources
    except ModuleNotFoundError as error:
        raise ImportError(f'pages of events need {error.name}; pip install "streamkpca[report]"') from error
    stream = _Stream.take(monitor, rows, time, names, first)
    if rarity is not None:
        canvas.check_count(rarity, len(stream.rows), "rarities")
    report = report or monitor.report()
    drawn = [line.events[line.worst] for line in report.lines[:_MOST_EVENTS]]
    edges = _choose_edges(len(stream.rows), [span for event in drawn if (span := stream.span_of(event))])
    series = {f"s{j}": _find_extremes(stream.rows[:, j], edges) for j in _choose_columns(stream, drawn)}
    top = None if rarity is None else _find_extremes(np.asarray(rarity), edges)
    listed = enumerate(report.lines[:_MOST_LINES])
    events = [_describe(stream, report, line, command, k < _MOST_EVENTS) for k, line in listed]
    spans = [event["span"] for event in events if event["span"]]
    script, figures = components(_draw(stream, edges, series, top, spans))
    learned = (
        f"{stream.write_ends()}{report.n_rows:,} rows were judged; the model has learned {report.n_learned:,} in all."
    )
    changes = [report.write(report.describe_change(change)) for change in report.changes]
    parts = {
        "TITLE": html.escape(title),
        "NOTES": "".join(f"<li>{html.escape(text)}</li>" for text in (learned, *notes)),
        "CHANGES": "".join(f"<pre>{html.escape(text)}</pre>" for text in changes),
        "TABLE": report.write_table(_MOST_LINES),
        "RESOURCES": Resources(mode="inline", components=["bokeh"]).render(),
        "FIGURES": figures,
        "SCRIPT": script,
        "PANELS": str(_PANELS),
        "NAMES": _in_script(stream.names),
        "EVENTS": _in_script(events),
    }
    page = Path(__file__).with_name("report_page.html").read_text(encoding="utf-8")
    page = re.sub("@@([A-Z]+)@@", lambda match: parts[match[1]], page)
    with replace_file(path, mode=SHARED) as file:
        file.write(page.encode())


def _describe(stream: _Stream, report: Report, line: ReportLine, command: str | None, is_drawn: bool) -> Facts:
    """Return what the page shows once a line of the table is chosen."""
    event, span = line.events[line.worst], stream.span_of(line.events[line.worst])
    return {
        "span": None if span is None else [stream.x[span[0]], stream.x[span[1] - 1]],
        "text": report.write(report.describe(line.worst, line.events)),
        "commands": [f"{command} --{verb} {line.worst}" for verb in ("accept", "confirm") if command],
        "panels": stream.expect(event) if is_drawn else [],
    }


def _choose_edges(n: int, spans: Sequence[tuple[int, int]]) -> npt.NDArray[np.intp]:
    """Return the first row of each stretch: even ones, and single rows around events."""
    edges = [np.linspace(0, n, min(n, _STRETCHES), endpoint=False).astype(np.intp)]
    for begin, end in spans:
        last = min(end, begin + _MOST_OF_EVENT)
        edges.append(np.arange(max(begin - _AROUND, 0), min(last + _AROUND, n), dtype=np.intp))
    return np.unique(np.concatenate(edges))


def _choose_columns(stream: _Stream, events: Sequence[Event]) -> list[int]:
    """Return the columns that are drawn: those of events, and then others in their order."""
    named = [stream.find(cause.feature) for event in events for cause in event.features[:_PANELS]]
    return list(dict.fromkeys([*named, *range(min(len(stream.names), _MOST_FEATURES))]))[:_MOST_FEATURES]


def _find_extremes(values: npt.NDArray[Any], edges: npt.NDArray[np.intp]) -> npt.NDArray[np.float32]:
    """Return the least and the greatest value of each stretch, in turn; NaN where it has none."""
    known = values.astype(np.float64)
    pairs = [np.fmin.reduceat(known, edges), np.fmax.reduceat(known, edges)] if len(edges) else [known, known]
    return np.stack(pairs, axis=1).ravel().astype(np.float32)


def _list(values: npt.NDArray[Any]) -> list[float | None]:
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values]


def _in_script(value: Any) -> str:
    """Write what a script reads, in which nothing ends the script."""
    return json.dumps(value).replace("<", "\\u003c")


def _draw(stream: _Stream, edges: npt.NDArray[np.intp], series: Facts, rarity: Any, spans: list[list[float]]) -> Any:
    """Draw rarities, and panels that the page fills with the sensors of the event that is chosen."""
    from bokeh.layouts import column
    from bokeh.models import ColumnDataSource, CustomJS, Range1d, WheelZoomTool
    from bokeh.models.annotations import BoxAnnotation
    from bokeh.plotting import figure

    x = stream.x[edges].repeat(2)
    limits = (float(x[0]), float(x[-1])) if len(x) else (0.0, 1.0)
    span = Range1d(start=limits[0], end=limits[1], bounds=limits, name="span")
    options: Facts = {
        "sizing_mode": "stretch_width",
        "height": 200,
        "x_axis_type": "datetime" if stream.is_dated else "linear",
        "x_range": span,
        "window_axis": "x",
        "tools": "xpan,xbox_zoom,reset",
    }
    # The page takes the numbers of other sensors from here.
    everything = ColumnDataSource({"x": x, **series}, name="all")
    span.js_on_change("start", CustomJS(args={"everything": everything}, code=""))
    figures: list[Any] = []
    if rarity is not None:
        figures.append(figure(y_axis_type="log", y_axis_label="once in rows", title="rarity", **options))
        figures[0].line(x, np.maximum(rarity, 1.0), color=canvas.LINE)
    first = [int(name[1:]) for name in series]
    for k in range(_PANELS):
        column_of_k = first[k] if k < len(first) else None
        title = "" if column_of_k is None else stream.names[column_of_k]
        values = np.full(len(x), np.nan) if column_of_k is None else series[f"s{column_of_k}"]
        panel = figure(name=f"panel{k}", title=title, visible=column_of_k is not None, **options)
        band = ColumnDataSource({"x": [], "low": [], "high": []}, name=f"band{k}")
        panel.varea("x", "low", "high", source=band, color=canvas.GOOD, alpha=0.3, legend_label="expected in hindsight")
        line = ColumnDataSource({"x": x, "y": values}, name=f"line{k}")
        panel.line("x", "y", source=line, color=canvas.LINE, legend_label="value")
        panel.legend.orientation = "horizontal"
        panel.legend.location = "top_left"
        panel.legend.background_fill_alpha = 0.6
        figures.append(panel)
    for one in figures:
        one.toolbar.active_scroll = None
        one.add_tools(WheelZoomTool(dimensions="width", modifiers={"ctrl": True}))
        for begin, end in spans:
            one.add_layout(
                BoxAnnotation(left=begin, right=end, fill_color=canvas.EVENT, line_color=canvas.EVENT, level="underlay")
            )
    return column(figures, sizing_mode="stretch_width")
