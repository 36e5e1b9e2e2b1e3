"""What a monitor found, as one page for a browser that asks no server for anything."""

import html
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.files import SHARED, FileName, replace_file
from streamkpca.errors import name_errors
from streamkpca.monitoring.report import Facts, write_count, write_duration, write_numbers
from streamkpca.plots import canvas
from streamkpca.rows.validation import feature_names

if TYPE_CHECKING:
    from streamkpca.monitoring import Monitor

# Buckets of the whole span: about two for each pixel of a wide screen.
_BUCKETS = 2000
# Rows beside an event that are drawn one by one, and the most of an event itself.
_AROUND = 50
_MOST_OF_EVENT = 500
# Events of the table, and features of each that are drawn.
_MOST_EVENTS = 100
_PANELS = 3
_VERBS = ("accept", "confirm")
_HEADS = ("event", "once in rows", "from", "hours or rows", "sensor", "value", "expected", "kind", "similar")


@name_errors
def write_report(
    monitor: "Monitor",
    path: FileName,
    *,
    rows: Any,
    time: npt.ArrayLike | None = None,
    rarity: npt.ArrayLike | None = None,
    first: int = 0,
    title: str = "Report",
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
        Rows of the stream. Beside events, extremes of many rows are drawn.
    time : array-like of shape (n,), optional
        Times of the rows; their positions if None.
    rarity : array-like of shape (n,), optional
        Rarities of the rows, as `Monitor.update` returns them; drawn above the sensors.
    first : int
        Position in the stream of the first of these rows.
    title : str
        The name of the page, such as that of the file of rows.
    command : str, optional
        A command that watches these rows with a saved model; the page shows how it accepts or confirms an event.

    Raises
    ------
    ImportError
        Bokeh is not installed.
    ValueError
        There is not one time or one rarity a row.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca.monitoring import Monitor
    >>> from streamkpca.plots import write_report
    >>> random = np.random.default_rng(0)
    >>> rows = np.repeat(random.normal(size=(1500, 1)), 3, axis=1) + 0.1 * random.normal(size=(1500, 3))
    >>> monitor = Monitor()
    >>> record = monitor.update(rows)
    >>> write_report(monitor, "report.html", rows=rows, rarity=record.rarity)  # doctest: +SKIP
    """
    try:
        from bokeh.embed import components
        from bokeh.resources import Resources
    except ModuleNotFoundError as error:
        raise ImportError(f'pages of events need {error.name}; pip install "streamkpca[report]"') from error
    n = len(rows)
    when = canvas.positions_or_times(n, time, first=first)
    if rarity is not None:
        canvas.check_count(rarity, n, "rarities")
    report = monitor.report()
    lines = report.lines[:_MOST_EVENTS]
    found = [report.describe(line.worst, line.events) for line in lines]
    spans = [(line.events[line.worst].start - first, line.events[line.worst].end - first) for line in lines]
    is_here = [0 <= begin < end <= n for begin, end in spans]
    names = feature_names(rows)
    names = [f"feature {j}" for j in range(np.shape(rows)[1])] if names is None else [str(name) for name in names]
    edges = _choose_edges(n, [span for span, here in zip(spans, is_here, strict=True) if here])
    series = {name: _find_extremes(np.asarray(rows)[:, j], edges) for j, name in enumerate(names)}
    top = None if rarity is None else _find_extremes(np.asarray(rarity), edges)
    x = _milliseconds(when)
    events = [
        {
            "first": x[span[0]] if here else None,
            "last": x[span[1] - 1] if here else None,
            "text": report.write(one),
            "commands": [] if command is None else [f"{command} --{verb} {one['number']}" for verb in _VERBS],
            "panels": _list_bands(monitor, rows, time, x, names, span, one, first) if here else [],
        }
        for one, span, here in zip(found, spans, is_here, strict=True)
    ]
    script, figures = components(_draw(x[edges].repeat(2), series, top, events, is_date=when.dtype.kind == "M"))
    changes = [report.write(report.describe_change(change)) for change in report.changes]
    summary = [
        f"{_write_when(when[0])} to {_write_when(when[-1])}" if n else "no rows",
        f"{write_count(report.n_rows, 'row')}, of which {report.n_learned:,} were learned",
        f"{write_count(report.n_listed, 'event')} listed, {report.n_events:,} in all",
    ]
    page = Path(__file__).with_name("report_page.html").read_text(encoding="utf-8")
    parts = {
        "TITLE": html.escape(title),
        "SUMMARY": "".join(f"<li>{html.escape(text)}</li>" for text in summary),
        "CHANGES": "".join(f"<pre>{html.escape(text)}</pre>" for text in changes),
        "HEADS": "".join(f"<th><button>{name}</button></th>" for name in _HEADS),
        "ROWS": "".join(
            _write_row(k, one, len(line.events)) for k, (one, line) in enumerate(zip(found, lines, strict=True))
        ),
        "RESOURCES": Resources(mode="inline", components=["bokeh"]).render(),
        "FIGURES": figures,
        "SCRIPT": script,
        "EVENTS": json.dumps(events).replace("<", "\\u003c"),
    }
    page = re.sub("@@([A-Z]+)@@", lambda match: parts[match[1]], page)
    with replace_file(path, mode=SHARED) as file:
        file.write(page.encode())


def _choose_edges(n: int, spans: list[tuple[int, int]]) -> npt.NDArray[np.intp]:
    """Return the first row of each bucket: even ones, and single rows around events."""
    edges = [np.linspace(0, n, min(n, _BUCKETS), endpoint=False).astype(np.intp)]
    for begin, end in spans:
        last = min(end, begin + _MOST_OF_EVENT)
        edges.append(np.arange(max(begin - _AROUND, 0), min(last + _AROUND, n), dtype=np.intp))
    return np.unique(np.concatenate(edges))


def _find_extremes(values: npt.NDArray[Any], edges: npt.NDArray[np.intp]) -> npt.NDArray[np.float32]:
    """Return the least and the greatest value of each bucket, in turn; NaN where it has none."""
    known = values.astype(np.float64)
    pairs = [np.fmin.reduceat(known, edges), np.fmax.reduceat(known, edges)] if len(edges) else [known, known]
    return np.stack(pairs, axis=1).ravel().astype(np.float32)


def _milliseconds(when: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    is_date = when.dtype.kind == "M"
    return (when.astype("M8[us]").astype(np.int64) / 1000.0) if is_date else when.astype(np.float64)


def _list_bands(
    monitor: "Monitor",
    rows: Any,
    time: Any,
    x: npt.NDArray[np.float64],
    names: list[str],
    span: tuple[int, int],
    found: Facts,
    first: int,
) -> list[Facts]:
    """Return, for the first features of an event, its values around it and the range that was expected."""
    begin = max(span[0] - _AROUND, 0)
    end = min(span[1], span[0] + _MOST_OF_EVENT) + _AROUND
    times = None if monitor.period is None or time is None else np.asarray(time)[begin:end]
    stacked = monitor.stack(rows[begin:end], first=first + begin, time=times)
    panels = []
    for cause in found["features"][:_PANELS]:
        if cause["feature"] not in names:
            continue
        part = stacked.copy()
        column = names.index(cause["feature"])
        part[:, column] = np.nan
        _, low, high = np.asarray(monitor.model.expected(part, column)).T
        band = {"x": x[begin:end], "low": low, "high": high}
        panels.append({"name": cause["feature"]} | {key: _list_numbers(values) for key, values in band.items()})
    return panels


def _list_numbers(values: npt.NDArray[Any]) -> list[float | None]:
    return [round(float(value), 9) if np.isfinite(value) else None for value in values]


def _draw(x: Any, series: dict[str, Any], rarity: Any, events: list[Facts], *, is_date: bool) -> Any:
    """Draw the timeline and the panels, which the page fills with the sensors of the event that is chosen."""
    from bokeh.layouts import column
    from bokeh.models import BoxAnnotation, ColumnDataSource, Range1d
    from bokeh.plotting import figure

    options: Facts = {
        "sizing_mode": "stretch_width",
        "x_axis_type": "datetime" if is_date else "linear",
        "tools": "xpan,xwheel_zoom,xbox_zoom,reset",
        "output_backend": "canvas",
    }
    source = ColumnDataSource({"x": x, **{f"s_{name}": values for name, values in series.items()}}, name="all")
    figures: list[Any] = []
    if rarity is not None:
        figures.append(figure(height=180, y_axis_type="log", y_axis_label="once in rows", **options))
        figures[0].line(x, rarity, color=canvas.LINE)
    for k in range(_PANELS):
        name = list(series)[k] if k < len(series) else None
        values = source.data[f"s_{name}"] if name is not None else np.full(len(x), np.nan)
        panel = figure(height=180, name=f"panel{k}", title=name or "", visible=name is not None, **options)
        band = ColumnDataSource({"x": [], "low": [], "high": []}, name=f"band{k}")
        panel.varea("x", "low", "high", source=band, color=canvas.GOOD, alpha=0.3, legend_label="expected")
        line = ColumnDataSource({"x": x, "y": values}, name=f"line{k}")
        panel.line("x", "y", source=line, color=canvas.LINE, legend_label="value")
        panel.legend.orientation = "horizontal"
        panel.legend.location = "top_left"
        panel.line("x", f"s_{next(iter(series))}", source=source, visible=False)
        figures.append(panel)
    span = Range1d(x[0] if len(x) else 0.0, x[-1] if len(x) else 1.0, name="span")
    for one in figures:
        one.x_range = span
        for event in events:
            if event["first"] is not None:
                box = {"left": event["first"], "right": event["last"]}
                one.add_layout(BoxAnnotation(**box, fill_color=canvas.EVENT, fill_alpha=0.4, line_color=canvas.EVENT))
    return column(figures, sizing_mode="stretch_width")


def _write_row(k: int, found: Facts, n_similar: int) -> str:
    cause: Facts = next(iter(found["features"]), {})
    value, expected = write_numbers(cause)[:2] if cause else ("", "")
    begin, end = (found.get(f"{name}_time", found[f"{name}_row"]) for name in ("first", "last"))
    if "first_time" in found and isinstance(begin, str):
        seconds = (np.datetime64(end) - np.datetime64(begin)) / np.timedelta64(1, "s")
        length = write_duration(float(seconds))
        order = float(seconds)
    else:
        order = float(found["last_row"] - found["first_row"] + 1)
        length = f"{order:,.0f}"
    cells = [
        (f"{found['number']:,}", found["number"]),
        (f"{found['severity']:,.0f}", found["severity"]),
        (str(begin).replace("T", " "), found["first_row"]),
        (length, order),
        (str(cause.get("feature", "")), None),
        (value, cause.get("value")),
        (expected, cause.get("expected")),
        (str(found["event_kind"]), None),
        (f"{n_similar:,}", n_similar),
    ]
    shown = "".join(
        f"<td{'' if order is None else f' data-order={order!r}'}>{html.escape(text)}</td>" for text, order in cells
    )
    return f'<tr tabindex="0" data-event="{k}">{shown}</tr>'


def _write_when(when: Any) -> str:
    return str(when.astype("M8[s]")).replace("T", " ") if isinstance(when, np.datetime64) else f"row {when:,}"
