"""`watch` and `score`: what is found by rows, times and columns of the file; decisions that can be stated; going on."""

import json
import os
import re
import shlex
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from commands import append, fact, learned, refused, run
from pyarrow import csv

from streamkpca import StreamingKernelPCA, load, plots
from streamkpca.changes import ChangeDetector
from streamkpca.cli.console import write_count
from streamkpca.monitoring import Monitor

NAMES = ["heat [°C]", "flow, total", "load"]
START = np.datetime64("2024-05-01T00:00")


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(5)
    rows = np.repeat(rng.normal(size=(1400, 1)), 3, axis=1) + 0.1 * rng.normal(size=(1400, 3))
    rows[900:920, 1] += 4.0
    rows[1000, 2] += 1.0
    return np.round(rows, 6)


def write(name, X, *, names=NAMES, first=None, form="%Y-%m-%dT%H:%M", mark=",", decimal="."):
    cells = [[repr(number).replace(".", decimal) for number in row] for row in X.tolist()]
    if first is not None:
        whens = (START + (first + i) * np.timedelta64(5, "m") for i in range(len(X)))
        cells = [[f"{when.item():{form}}", *row] for when, row in zip(whens, cells, strict=True)]
    head = [f'"{name}"' for name in ([*["when"] * (first is not None), *names])]
    Path(name).write_text("".join(mark.join(row) + "\n" for row in [head, *cells]))


@pytest.fixture
def folder(tmp_path, X, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("all.csv", X, first=0)
    return tmp_path


def told(*args, stdin=None):
    result = run(*args, "--json", stdin=stdin)
    assert result.exit_code == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["kind"] for line in lines].count("summary") == (lines[-1]["kind"] == "summary") == 1
    return lines, result.stderr


def events(lines):
    return [line for line in lines if line["kind"] == "event"]


def worst(lines):
    return max(events(lines), key=lambda event: event["severity"])


def is_the_fault(event):
    """Tell whether an event is the fault in lines 902 to 921; a false alarm near them may belong to it."""
    return 892 < event["first_row"] <= 902 and 921 <= event["last_row"] <= 931 and event["alarms"] >= 19


def table_of(path):
    strings = csv.ConvertOptions(column_types={"when": pa.string()})
    return csv.read_csv(path, convert_options=strings).to_pandas()


# Any file


def test_one_pass_finds_an_event_with_its_rows_times_and_columns(folder):
    lines, _ = told("watch", "all.csv")
    event = worst(lines)
    # Lines of the file, the header included.
    assert is_the_fault(event)
    assert event["first_time"] == str(START + (event["first_row"] - 2) * np.timedelta64(300, "s"))
    assert not event["is_open"]
    cause = event["features"][0]
    assert (cause["feature"], cause["direction"]) == ("flow, total", "above")
    assert cause["low"] < cause["expected"] < cause["high"] < cause["value"]
    assert abs(cause["value"] - cause["expected"] - 4.0) < 1.0
    assert 892 < cause["since_row"] <= 904
    assert cause["since_time"] == str(START + (cause["since_row"] - 2) * np.timedelta64(300, "s"))
    assert event["severity"] > 1400.0
    assert (lines[-1]["rows"], lines[-1]["events"]) == (1400, len(events(lines)))


def ugly(X, kind):
    """Write a file with one kind of trouble, in which the event stays where it is; return the names it has."""
    if kind == "decimal commas":
        write("x.csv", X, first=0, form="%d.%m.%Y %H:%M", mark=";", decimal=",")
    elif kind == "a day and an hour, tabs":
        write("x.csv", X, first=0, form="%Y/%m/%d\t%H.%M.%S", mark="\t")
        Path("x.csv").write_text(Path("x.csv").read_text().replace('"when"', "day\thour", 1))
    else:
        write("x.csv", X, first=0)
    lines = Path("x.csv").read_text().splitlines()
    if kind == "columns that tell nothing":
        lines = [f"{line},{i},{3},,{'ok' if i % 9 else ''}" for i, line in enumerate(lines)]
        lines[0] = lines[0].rpartition(",0,")[0] + ",id,valve,empty,note"
    elif kind == "gaps and bad rows":
        lines[50] = lines[50].rpartition(",")[0] + ","
        lines[60] = lines[60].rpartition(",")[0] + ",n/a"
        lines[70] = lines[70].rpartition(",")[0] + ",ERROR"
        lines[80] += ",1"
    Path("x.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("kind", "says"),
    {
        "decimal commas": [
            "decimals +commas",
            "cells +semicolons",
            "when, as %d.%m.%Y %H:%M:%S: 2024-05-01T00:00:00 to 2024-05-05T20:35:00",
        ],
        "a day and an hour, tabs": ["cells +tabs", "day hour, as %Y/%m/%d %H.%M.%S"],
        "columns that tell nothing": [
            "text +note",
            "numbering rows +id",
            "empty +empty",
            r"constant so far +valve \(3\)",
        ],
        "gaps and bad rows": [
            r"gaps +load \(0.21%\)",
            "rows left out: 1 .*: x.csv, line 81: expected 4 cells but got 5",
            "'load': cells taken for gaps: 1, the first: line 71 holds 'ERROR'",
        ],
    }.items(),
)
def test_an_ugly_file_is_read_rightly_and_the_line_that_is_printed_does_the_same(folder, X, kind, says):
    ugly(X, kind)
    lines, said = told("watch", "x.csv")
    for part in says:
        assert re.search(part, said), said
    event = worst(lines)
    assert is_the_fault(event)
    assert event["features"][0]["feature"] == "flow, total"
    words = shlex.split(said.partition("The same in full: ")[2].partition("\n")[0])
    assert words[:3] == ["streamkpca", "watch", "x.csv"]
    assert words[-1] == "--json"
    again, stated = told(*words[1:-1])
    assert again == lines
    # There is nothing left to decide.
    assert words == shlex.split(stated.partition("The same in full: ")[2].partition("\n")[0])


def test_events_that_few_rows_came_before_are_listed_last_although_they_seem_rarer(folder):
    rng = np.random.default_rng(13)
    rows = rng.normal(size=(6000, 1)) + 0.1 * rng.normal(size=(6000, 3))
    rows[5000:5020] += 6.0
    np.save("x.npy", rows)
    listed = re.findall(r"once in ([\d,]+) rows.*?(?:row|between row) ([\d,]+)", run("watch", "x.npy").stdout)
    starts = [int(row.replace(",", "")) for _, row in listed]
    assert starts[0] == 5000
    assert min(starts) < 4096


def test_people_read_when_where_and_how_sure(folder):
    title, _, event, line, *_ = run("watch", "all.csv").stdout.splitlines()
    assert re.fullmatch(
        r"all.csv, 1,400 rows: (1 event|\d+ events, (similar ones together, )?(broken relations|the rarest) first.*)",
        title,
    )
    when = r"2024-05-04 0\d:\d\d:00 \(line 9\d\d\) to 2024-05-04 0\d:"
    rare = r"Event \d+: once in [\d,]+ rows \(\d+ \w+\) \(an estimate, from the 9\d\d before\)"
    assert re.match(rf"{rare}, (values that do not fit|not seen before).*; {when}", event)
    assert re.fullmatch(
        r"  flow, total: -?[\d.]+, expected -?[\d.]+ \(-?[\d.]+ to -?[\d.]+\), (above|below) "
        r"since 2024-05-0\d \d\d:\d\d:00 \(line [\d,]+\)",
        line,
    )
    assert [write_count(n, "alarm") for n in (0, 1, 1000)] == ["0 alarms", "1 alarm", "1,000 alarms"]


def test_a_column_that_has_moved_with_the_others_is_not_said_to_be_above_or_below(folder):
    rng = np.random.default_rng(1)
    np.save("x.npy", rng.normal(size=(600, 1)) + 0.1 * rng.normal(size=(600, 3)))
    lines = re.findall(r": (\S+), expected \S+ \((\S+) to (\S+)\), (in line)?", run("watch", "x.npy").stdout)
    inside = [float(low) <= float(value) <= float(high) for value, low, high, _ in lines]
    assert inside == [line[3] == "in line" for line in lines]
    assert {*inside} == {True, False}


def test_a_file_that_is_not_in_order_of_time_is_put_in_order(folder):
    lines, _ = told("watch", "all.csv")
    head, *rest = Path("all.csv").read_text().splitlines()
    Path("all.csv").write_text("\n".join([head, *rest[::-1]]) + "\n")
    turned, said = told("watch", "all.csv")
    assert "rows are put in order of time" in said
    for one, other in zip(events(lines), events(turned), strict=True):
        assert (one["first_time"], one["severity"]) == (other["first_time"], other["severity"])
        # The rows keep their numbers in the file.
        assert one["first_row"] + other["first_row"] == len(rest) + 3
    refused(run("watch", "-", stdin=Path("all.csv").read_text()), "not in order of time; only a file that is complete")


def test_clocks_that_are_set_back_do_not_stop_it(folder, X):
    lines = Path("all.csv").read_text().splitlines()
    lines[500:] = [
        line.replace(line[:16], str(np.datetime64(line[:16]) - np.timedelta64(1, "h"))) for line in lines[500:]
    ]
    Path("all.csv").write_text("\n".join(lines) + "\n")
    found, said = told("watch", "all.csv")
    assert "all.csv, line 501: times go back here; until they catch up, rows have the latest time so far" in said
    assert worst(found)["first_time"].startswith("2024-05-04T0")


@pytest.mark.parametrize("d", [1, 5])
def test_healthy_counts_bring_few_events(folder, d):
    np.save("x.npy", np.random.default_rng(d).poisson(2.0, size=(8000, d)).astype(float))
    assert int(re.match(r"x.npy, 8,000 rows: (\d+) event", run("watch", "x.npy").stdout)[1]) <= 8


def test_events_that_are_alike_are_one_line(folder, X):
    rows = X.copy()
    rows[[1100, 1200, 1300], 1] += 9.0
    write("x.csv", rows)
    # Half of the events have a single alarm, so each further one is half as likely; the root of that counts.
    found = [e for e in events(told("watch", "x.csv")[0]) if e["severity"] * 2 ** ((e["alarms"] - 1) / 2) >= 1400]
    groups = {}
    for event in found:
        groups.setdefault(event["group"], []).append(event)
    most = max(groups.values(), key=len)
    assert len(most) > 1
    title, *lines = run("watch", "x.csv").stdout.splitlines()
    assert title.startswith(f"x.csv, 1,400 rows: {len(found)} events, similar ones together")
    n_alarms = sum(event["alarms"] for event in most)
    span = f"between line {most[0]['first_row']:,} and line {most[-1]['last_row']:,}, {n_alarms} alarms"
    assert sum(line.endswith(f"{len(most)} similar events {span}") for line in lines) == 1
    assert len([line for line in lines if line.startswith("Event ")]) == min(len(groups), 10)


def test_events_keep_their_numbers_also_when_the_monitor_has_forgotten_them(folder, X, monkeypatch):
    number = worst(told("watch", "all.csv")[0])["number"]
    monkeypatch.setattr("streamkpca.monitoring.monitor._MOST_EVENTS", 1)
    lines, _ = told("watch", "all.csv", "--chunk-rows", "100")
    assert (worst(lines)["number"], [event["number"] for event in events(lines)][-1]) == (number, lines[-1]["events"])
    assert f"Event {number}: once" in run("watch", "all.csv", "--chunk-rows", "100").stdout
    assert lines[-1]["events"] >= number


def test_few_rows_have_no_threshold_and_many_alarms_are_told(folder, X):
    write("few.csv", X[:40])
    assert "no alarms yet: these begin once 64 rows are learned\n" in told("watch", "few.csv")[1]
    rows = X.copy()
    rows[300::3, 2] += 8.0
    write("many.csv", rows)
    learned(X).save("m.npz")
    lines, _ = told("score", "many.csv", "--model", "m.npz", "--learn", "none")
    assert any(line["kind"] == "change" and not line["is_accepted"] for line in lines)


def test_the_command_finds_what_the_monitor_finds_whatever_the_chunks(folder, X):
    options = ["--quantile", "0.95"]
    monitor = Monitor(quantile=0.95)
    record = monitor.update(X)
    spans = [(event.start + 2, event.end + 1, event.n_alarms) for event in monitor.events_]
    for n in (7, 4096):
        lines, _ = told("watch", "all.csv", *options, "--chunk-rows", n, "--save", "o.csv")
        assert sorted((e["first_row"], e["last_row"], e["alarms"]) for e in events(lines)) == spans
        table = table_of("o.csv")
        assert table.columns.tolist() == ["row", "when", "novelty", "rarity", "rarity_so_far", "alarm"]
        np.testing.assert_array_equal(table["row"], np.arange(2, 1402))
        for name in ("novelty", "rarity", "rarity_so_far"):
            np.testing.assert_allclose(table[name], getattr(record, name), rtol=1e-9)


@pytest.mark.parametrize(("option", "period"), [("24", 24), ("1day", timedelta(days=1)), ("1.5 hours", 5400.0)])
def test_a_period_is_in_rows_or_in_time(folder, X, option, period):
    monitor = Monitor(period=period)
    monitor.update(X, time=START + np.arange(len(X)) * np.timedelta64(5, "m"))
    lines, notes = told("watch", "all.csv", "--period", option, "--model", f"{option}.npz")
    # What stands in the line that says the same in full is read as the same.
    again = re.search(r"--period (\S+)", notes)
    told("watch", "all.csv", "--period", again[1], "--model", "again.npz")
    assert Monitor.load("again.npz").period == monitor.period
    assert Monitor.load(f"{option}.npz").period == monitor.period
    assert sorted(e["first_row"] for e in events(lines)) == [event.start + 2 for event in monitor.events_]


def test_a_monitor_with_a_period_knows_its_columns_without_names(folder, X):
    np.save("x.npy", X)
    told("watch", "x.npy", "--period", "20", "--model", "m.npz")
    assert told("watch", "x.npy", "--model", "m.npz", "--from-start")[0][-1]["rows"] == 1400
    info = json.loads(run("info", "m.npz", "--json").stdout)
    assert (info["columns"], info["monitor"]["period"]) == (3, 20)


def test_models_that_see_more_than_a_row_are_for_watch_and_score(folder, X):
    told("watch", "all.csv", "--period", "20", "--model", "m.npz")
    learned(X).save("alone.npz")
    refused(
        run("fit", "all.csv", "--resume", "--model", "m.npz"),
        "m.npz: this model sees each row with its phase",
    )
    for one, other in (("m", "alone"), ("alone", "m")):
        refused(run("merge", f"{one}.npz", f"{other}.npz", "--out", "o.npz"), "m.npz: this model sees each row with")


def test_a_budget_of_events_holds_in_rows_or_in_time(folder, X):
    rows = X.copy()
    rows[200::25, 1] += 9.0
    write("many.csv", rows, first=0)
    n_free = told("watch", "many.csv", "--quantile", "0.9")[0][-1]["events"]
    # The bar rises by 0.3 an event from 1, that of once in ten rows, to 6.
    for rate, n_allowed in (("1/1000", 1.4), ("2/day", 2 * 1400 / 288)):
        lines, _ = told("watch", "many.csv", "--quantile", "0.9", "--most-events", rate, "--model", f"{rate[2:]}.npz")
        assert lines[-1]["events"] <= min(n_allowed + 5.3 / 0.3, n_free)
    assert Monitor.load("1000.npz").most_events == 1 / 1000
    assert Monitor.load("day.npz").most_events == (2.0, 86_400.0)
    refused(run("watch", "all.csv", "--most-events", "rare"), "most_events as a rate a row, such as 1 / 1000")
    refused(run("watch", "all.csv", "--most-events", "1/0"), "expected a rate, as in 1/1000 or 2/day", code=2)
    write("plain.csv", X)
    refused(run("watch", "plain.csv", "--most-events", "2/day"), "most_events is a rate in time")
    assert "once 64 rows are learned and one period has passed" in told("watch", "all.csv", "--period", "2000")[1]


@pytest.mark.parametrize("until", ["700", "2024-05-03T10:20"])
def test_healthy_rows_are_declared_by_rows_or_by_time(folder, X, until):
    monitor, whens = Monitor(), START + np.arange(len(X)) * np.timedelta64(5, "m")
    assert whens[700] == np.datetime64("2024-05-03T10:20")
    monitor.update(X[:700], time=whens[:700], healthy=True)
    record = monitor.update(X[700:], time=whens[700:])
    for n in (300, 4096):
        told("watch", "all.csv", "--healthy-until", until, "--chunk-rows", n, "--save", "o.csv")
        np.testing.assert_allclose(table_of("o.csv")["rarity"][700:], record.rarity, rtol=1e-9)
    refused(run("watch", "all.csv", "--healthy-until", "noon"), "expected a number of rows, or a time such as")
    write("plain.csv", X)
    refused(
        run("watch", "plain.csv", "--healthy-until", "2024-05-03T10:20"), "the rows have no times; name their column"
    )


def test_the_report_is_that_of_the_monitor_and_info_lists_the_same(folder, X):
    np.save("x.npy", X)
    text = run("watch", "x.npy", "--model", "m.npz").stdout
    report = Monitor.load("m.npz").report()
    shown = re.findall(r"Event ([\d,]+): once in", text)
    assert shown == re.findall(r"Event ([\d,]+): once in", str(report))
    assert shown == [f"{line.worst:,}" for line in report.lines[:10]]
    assert re.findall(r"  event ([\d,]+) at", run("info", "m.npz").stdout) == shown
    assert len(shown) > 0


def test_a_lasting_change_is_accepted_by_its_name(folder, X):
    shift = np.array([0.0, 0.0, 8.0])
    write("x.csv", np.concatenate([X[:800], X[:800] + shift]), first=0)
    found, _ = told("watch", "x.csv", "--healthy-until", "800", "--model", "m.npz")
    (change,) = [line for line in found if line["kind"] == "change"]
    assert (change["is_accepted"], change["features"][0]) == (False, "load")
    write("later.csv", X[100:400] + shift, first=1600)
    lines, said = told("watch", "later.csv", "--model", "m.npz", "--accept", "change")
    assert re.search(r"Accepted: lasting change from .*; such rows raise no alarm from now on", said)
    assert Monitor.load("m.npz").change_detected_.is_accepted
    assert lines[-1]["alarms"] == 0
    told("watch", "all.csv", "--model", "new.npz")
    refused(
        run("watch", "later.csv", "--model", "new.npz", "--accept", "change"), "--accept change: there is no lasting"
    )
    refused(
        run("watch", "later.csv", "--model", "m.npz", "--accept", "x"),
        "expected the number of an event, or change",
        code=2,
    )


@pytest.mark.parametrize(("learn", "accepted"), [("normal", True), ("none", False)])
def test_a_lasting_change_is_told_and_drawn_with_its_row(folder, X, learn, accepted, monkeypatch):
    rows = X[200:800].copy()
    rows[300:, 2] += 5.0
    write("x.csv", rows, first=0)
    learned(X[:800]).save("m.npz")
    args = ["score", "x.csv", "--model", "m.npz", "--accept-after", "100", "--learn", learn, "--time", "when"]
    (change,) = [line for line in told(*args)[0] if line["kind"] == "change"]
    # The first alarms are counted in bins of 32 rows.
    assert 302 <= change["first_row"] < 302 + 32
    assert change["first_time"] == str(START + (change["first_row"] - 2) * np.timedelta64(300, "s"))
    assert (change["is_accepted"], change["features"][0]) == (accepted, "load")
    not_learned = r"\n  load\n  \d+% of the rows since then were not learned: a fault, or another state\?"
    rest = r", learned as normal\n  load" if accepted else not_learned
    span = r"Lasting change from 2024-05-02 0\d:\d0:00 \(line 3\d\d\) on, noticed at .*"
    assert re.search(span + rest, run(*args).stdout)
    drawn = []
    monkeypatch.setattr("streamkpca.plots.draw_novelty", lambda novelty, changes, **more: drawn.extend(changes))
    assert run(*args, "--plot", "p.png").exit_code == 0
    assert (drawn[0].start, drawn[0].features[0].feature) == (change["first_row"] - 2, "load")


def test_a_report_is_a_page_with_what_is_listed_and_the_command_that_accepts(folder, X):
    text = run("watch", "all.csv", "--model", "m.npz", "--report", "r.html").stdout
    assert "Report: r.html" in text
    page = Path("r.html").read_text(encoding="utf-8")
    numbers = re.findall(r"^Event (\d+): once in", text, re.MULTILINE)
    assert [number.replace(",", "") for number in re.findall(r"<tr><td data-order=[\d.]+>([\d,]+)<", page)] == numbers
    assert f"watch all.csv --model m.npz --accept {numbers[0]}" in page
    assert "<li>watched: " in page
    refused(run("watch", "all.csv", "--report", "r.png"), "r.png: the report is written as .html", code=2)
    refused(run("watch", "all.csv", "--report", "all.csv"), "all.csv", code=2)
    assert Path("r.html").read_text(encoding="utf-8") == page


# Going on


def test_what_a_user_says_of_an_event_by_its_number_is_kept_with_the_model(folder, X):
    lines, _ = told("watch", "all.csv", "--model", "m.npz")
    numbers = [event["number"] for event in events(lines)]
    assert numbers == list(range(1, len(numbers) + 1))
    fault = worst(lines)["number"]
    shown = re.findall(r"Event (\d+): once in", run("watch", "all.csv", "--model", "p.npz").stdout)
    assert str(fault) in shown
    Path("other.npz").write_bytes(Path("m.npz").read_bytes())
    write("later.csv", np.tile(X[900:920], (5, 1)), first=1400)
    for option, model, word, n_alarms in (("--accept", "m", "accepted", 0), ("--confirm", "other", "confirmed", 100)):
        later, said = told("watch", "later.csv", "--model", f"{model}.npz", option, fault)
        assert f"{word.capitalize()}: event {fault} at 2024-05-04" in said
        assert re.search(
            rf"  event {fault} at 2024-05-04.*, in flow, total, once in .*, {word}", run("info", f"{model}.npz").stdout
        )
        assert later[-1]["alarms"] == n_alarms
        assert any(event["like_confirmed"] == fault for event in events(later)) == (word == "confirmed")
        assert Monitor.load(f"{model}.npz").events_[fault - 1].feedback == word
        # It is kept.
        write("more.csv", np.tile(X[900:920], (5, 1)), first=1500)
        assert told("watch", "more.csv", "--model", f"{model}.npz")[0][-1]["alarms"] == n_alarms
    refused(run("watch", "later.csv", "--accept", "1"), "leave out --accept", code=2)
    both = ("--accept", "1", "--confirm", "1")
    refused(run("watch", "later.csv", "--model", "m.npz", *both), "event 1: --accept and --confirm contradict", code=2)
    refused(run("watch", "later.csv", "--model", "new.npz", "--accept", "1"), "new.npz: No such file")
    refused(run("watch", "later.csv", "--by", "load", "--model", "m.npz", "--accept", "1"), "--by load=M1", code=2)
    refused(run("watch", "later.csv", "--model", "m.npz", "--accept", "999"), "expected the number of the latest")


def test_a_saved_monitor_goes_on_with_its_columns_and_its_time(folder, X):
    write("first.csv", X[:950], first=0)
    write("second.csv", X[950:][:, ::-1], names=NAMES[::-1], first=950)
    told("watch", "first.csv", "--quantile", "0.99", "--model", "m.npz")
    assert Monitor.load("m.npz").n_rows_ == 950
    info = json.loads(run("info", "m.npz", "--json").stdout)
    assert (info["monitor"]["quantile"], info["column_names"]) == (0.99, NAMES)
    assert re.fullmatch(r"RBF\(gamma=0\.\d{1,5}\)\.in_units\(.{1,60}\)", fact(run("info", "m.npz").stdout, "kernel"))
    refused(
        run("watch", "second.csv", "--model", "m.npz", "--quantile", "0.9"),
        "it began with; leave out --quantile",
        code=2,
    )
    later, _ = told("score", "second.csv", "--model", "m.npz")
    assert all(event["first_time"] >= "2024-05-04T07:10" for event in events(later))
    assert all(event["first_row"] >= 2 for event in events(later))
    # The score leaves the file as it is.
    assert Monitor.load("m.npz").n_rows_ == 950
    assert told("watch", "second.csv", "--model", "m.npz")[0] == later
    assert Monitor.load("m.npz").n_rows_ == 1400
    told("watch", "second.csv", "--model", "m.npz", "--from-start", "--learn", "none", "--accept-after", "99")
    monitor = Monitor.load("m.npz")
    assert (monitor.n_rows_, monitor.learn, monitor.accept_after, monitor.quantile) == (1850, "none", 99, 0.99)
    write("renamed.csv", X, names=["Heat", *NAMES[1:]])
    refused(run("watch", "renamed.csv", "--model", "m.npz"), "it lacks heat [°C]; it has Heat,")


def test_without_times_files_are_one_stream(folder, X):
    for name, rows in (("first", X[:950]), ("second", X[950:]), ("both", X)):
        write(f"{name}.csv", rows)
    told("watch", "first.csv", "--model", "m.npz")
    told("watch", "second.csv", "--model", "m.npz", "--save", "second.out.csv")
    told("watch", "both.csv", "--save", "both.out.csv")
    later, whole = table_of("second.out.csv"), table_of("both.out.csv")
    np.testing.assert_allclose(later["rarity"], whole["rarity"][950:], rtol=1e-9)
    np.testing.assert_array_equal(later["alarm"], whole["alarm"][950:])


def test_a_file_without_times_may_follow_one_with_times(folder, X):
    write("plain.csv", X[:300])
    told("watch", "all.csv", "--model", "m.npz")
    for what in ("score", "watch"):
        assert told(what, "plain.csv", "--model", "m.npz")[0][-1]["rows"] == 300
    assert told("watch", "all.csv", "plain.csv")[0][-1]["rows"] == 1700


def test_the_file_of_a_change_detector_is_refused(folder):
    detector = ChangeDetector(StreamingKernelPCA(2).partial_fit(np.random.default_rng(0).normal(size=(64, 3))))
    detector.save("d.npz")
    refused(run("watch", "all.csv", "--model", "d.npz"), "d.npz: holds a ChangeDetector")


def test_a_file_that_has_grown_goes_on_where_it_was_left(folder, X):
    lines = Path("all.csv").read_text().splitlines(keepends=True)
    Path("all.csv").write_text("".join(lines[:911]))
    begun, _ = told("watch", "all.csv", "--model", "m.npz")
    assert worst(begun)["is_open"]
    none, said = told("watch", "all.csv", "--model", "m.npz")
    assert (none[-1]["rows"], none[-1]["events"]) == (0, 0)
    assert "no new rows since it was read for this model; --from-start watches it anew" in said
    append("all.csv", *lines[911:])
    rest, _ = told("watch", "all.csv", "--model", "m.npz")
    event = worst(rest)
    # Its first row was read before.
    assert event["first_row"] is None
    assert event["first_time"] == worst(begun)["first_time"]
    assert 921 <= event["last_row"] <= 931
    assert (rest[-1]["rows"], rest[-1]["events"]) == (1401 - 911, len(events(rest)))
    assert told("watch", "all.csv", "--model", "m.npz", "--from-start")[0][-1]["rows"] == 1400


def test_a_model_that_was_fitted_goes_on(folder, X):
    write("old.csv", X[:800])
    assert run("fit", "old.csv", "--model", "m.npz").exit_code == 0
    write("new.csv", X[800:], first=800)
    event = worst(told("watch", "new.csv", "--model", "m.npz")[0])
    assert (event["first_row"], event["known_rows"]) == (102, 900)
    assert (load("m.npz").n_rows_, load("m.npz").events_[0].features[0].feature) in [(600, name) for name in NAMES]
    assert load("m.npz").model.n_samples_seen_ > 1000


def test_events_come_as_rows_come(folder, X):
    text = Path("all.csv").read_text()
    lines, _ = told("watch", "-", "--follow", "--chunk-rows", "5", stdin=text)
    first = worst(lines)["first_row"]
    began, ended = [event for event in events(lines) if event["first_row"] == first]
    assert (began["is_open"], ended["is_open"]) == (True, False)
    assert began["last_row"] < 921 <= ended["last_row"]
    assert lines[-1]["events"] == len({event["first_row"] for event in events(lines)})
    # People are told of events that are rarer than once in the rows read.
    output = run("watch", "-", "--follow", "--chunk-rows", "5", stdin=text).stdout
    assert "still open" in output
    assert all(int(rarity.replace(",", "")) > 64 for rarity in re.findall(r"once in ([\d,]+) rows,", output))
    assert output.count(f"(line {first})") >= 2


# Options of both


def test_labels_measure_how_well_faults_are_found(folder, X):
    is_fault = (np.arange(1400) // 20) == 45
    write("x.csv", np.column_stack([X, is_fault]), names=[*NAMES, "fault"])
    output = run("watch", "x.csv", "--labels", "fault").stdout
    assert fact(output, "labelled rows") == "20"
    assert (fact(output, "labelled faults"), fact(output, "faults with an alarm")) == ("1", "1")
    assert float(fact(output, "alarms in other rows")) < 0.05


def test_a_picture_shows_what_the_monitor_finds(folder, X, monkeypatch):
    drawn = {}

    def draw_novelty(novelty, **options):
        drawn.update(options, novelty=novelty)
        return options["ax"]

    write("new.csv", X[700:], first=700)
    write("old.csv", X[:700], first=0)
    told("watch", "old.csv", "--model", "m.npz")
    events = []
    draw_event = plots.draw_event
    monkeypatch.setattr("streamkpca.plots.draw_event", lambda *args, **more: events.append(draw_event(*args, **more)))
    result = run("score", "new.csv", "--model", "m.npz", "--plot", "p.png")
    assert result.stdout.endswith("Picture: p.png\n")
    assert Path("p.png").read_bytes().startswith(b"\x89PNG")
    # Above, the features of the worst event, in which the fault lies.
    (panel, *_) = events[0].axes
    assert panel.get_ylabel() == "flow, total"
    expected, value = (np.array(line.get_ydata()) for line in panel.lines)
    i = list(panel.lines[0].get_xdata()).index(START + 910 * np.timedelta64(5, "m"))
    assert value[i] == X[910, 1]
    assert abs(value[i] - expected[i] - 4.0) < 1.0
    monkeypatch.setattr("streamkpca.plots.draw_novelty", draw_novelty)
    assert run("score", "new.csv", "--model", "m.npz", "--plot", "p.svg").exit_code == 0
    monitor = Monitor.load("m.npz").reset()
    record = monitor.update(X[700:])
    np.testing.assert_allclose(drawn["novelty"], record.rarity, rtol=1e-9)
    np.testing.assert_array_equal(drawn["alarms"], record.is_alarm)
    assert drawn["time"][0] == START + 700 * np.timedelta64(5, "m")
    # Those that are rarer than once in the rows read.
    spans = [(e.start - 700, e.end - 700) for e in monitor.events_ if e.end > 700 and e.severity >= 700]
    assert [(event.start, event.end) for event in drawn["events"]] == spans


def test_rows_with_gaps_are_learned_and_scored(folder, X):
    gapped = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    np.save("x.npy", gapped)
    lines, _ = told("watch", "x.npy", "--model", "m.npz")
    n = int((~np.isnan(gapped).all(axis=1)).sum())
    assert (lines[-1]["rows"], lines[-1]["rows_skipped"]) == (n, 1400 - n)
    # Rows of arrays are counted from 0. Severities of the first events are estimates from few rows.
    later = [event for event in events(lines) if event["first_row"] >= 256]
    assert max(later, key=lambda event: event["severity"])["first_row"] in range(898, 903)
    assert told("score", "x.npy", "--model", "m.npz")[0][-1]["rows"] == n


@pytest.mark.parametrize(
    ("args", "part", "code"),
    [
        (["watch", "x.csv", "--period", "1d"], "x.csv: the period is a time, 86400 s, but the rows have none; name", 1),
        (["score", "all.csv", "--model", "all.csv"], "all.csv", 1),
        (["score", "all.csv", "--model", "absent.npz"], "absent.npz", 1),
        (["score", "all.csv", "--model", "empty.npz"], "has not learned any rows yet", 1),
        (["score", "all.csv", "--model", "m.npz", "--save", "m.npz"], "is read as input", 2),
        (["score", "all.csv", "--model", "m.npz", "--save", "o.txt"], "o.txt", 1),
        (["watch", "all.csv", "--model", "all.csv"], "is read as input", 2),
        (["watch", "m.npz"], "m.npz: is a picture, a document or a model", 1),
        (["watch", "all.csv", "--drop", "Load"], "no column 'Load'; it has 4: when, heat", 1),
        (["fit", "x.csv", "--model", "n.npz", "--time-format", "%H"], "no column of times is found for", 1),
        (["watch", "all.csv", "--time", "hour"], "no column 'hour'; it has 4: when, heat", 1),
        (["watch", "all.csv", "--time-format", "%H:%M", "--time", "when"], "no rows of numbers (1400 skipped", 1),
    ],
)
def test_wrong_use_is_refused(folder, X, args, part, code):
    learned(X[:100]).save("m.npz")
    StreamingKernelPCA().save("empty.npz")
    write("x.csv", X[:100])
    before = {path: path.read_bytes() for path in folder.iterdir()}
    refused(run(*args), part, code=code)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_switches_are_told_in_the_words_of_the_file(folder, X):
    is_on = X[:, 0] > 0.0
    is_open = is_on ^ ((np.arange(len(X)) >= 900) & (np.arange(len(X)) < 930))
    cells = zip(np.where(is_on, "ON", "OFF"), np.where(is_open, "open", "closed"), X[:, 2].tolist(), strict=True)
    Path("x.csv").write_text("pump,valve,load\n" + "".join(f"{pump},{valve},{load}\n" for pump, valve, load in cells))
    said = run("watch", "x.csv").stdout
    assert re.search(r"  (pump: O\w+, expected O\w+|valve: \w+, expected (open|closed)), ", said)


def test_columns_that_end_or_change_are_told(folder):
    lines = Path("all.csv").read_text().splitlines()
    shorter = [line.rpartition(",")[0] for line in lines[601:]]
    Path("x.csv").write_text("\n".join([*lines[:601], *(f"{line}," for line in shorter)]))
    assert "column 'load': no number after line 601" in told("watch", "x.csv")[1]
    Path("x.csv").write_text("\n".join([*lines[:601], *shorter]))
    # What rows lack at their ends are gaps.
    assert "column 'load': no number after line 601" in told("watch", "x.csv")[1]


# Several machines, several files, results that go on


def test_machines_in_one_file_are_refused_with_a_line_that_watches_each(folder, X):
    rows = Path("all.csv").read_text().splitlines()
    both = [f"{line},M{k}" for line in rows[1:] for k in (1, 2)]
    Path("two.csv").write_text("\n".join([f"{rows[0]},machine", *both]) + "\n")
    result = run("watch", "two.csv")
    refused(result, "two.csv: holds rows of 2 machines (machine: M1, M2)")
    line = re.search(r"a monitor for each: (.*?); or one for all", result.stderr)[1]
    words = shlex.split(line)[1:]
    single, _ = told("watch", "all.csv", "--save", "all.out.csv")
    for k in (1, 2):
        lines, _ = told(*words[:-1], f"machine=M{k}")
        assert [line | {"machine": ""} for line in events(lines)] != []
        assert {line["machine"] for line in lines} == {f"M{k}"}
        times = [(line["first_time"], line["severity"]) for line in events(lines)]
        assert times == [(line["first_time"], line["severity"]) for line in events(single)]
        assert (lines[-1]["rows"], lines[-1]["rows_read"]) == (1400, 1400)
    done = run(*words, "--model", "m.npz", "--save", "o.csv")
    assert re.findall(r"two.csv, M(\d), 1,400 rows", done.stdout) == ["1", "2"]
    assert re.findall(r"two.csv, M(\d), by its first 2,800 rows", done.stderr) == ["1", "2"]
    for k in (1, 2):
        assert Monitor.load(f"m-M{k}.npz").n_rows_ == 1400
        np.testing.assert_array_equal(table_of(f"o-M{k}.csv")["novelty"], table_of("all.out.csv")["novelty"])
    Path("more.csv").write_text("\n".join([f"{rows[0]},machine", *(f"{line},M3" for line in rows[1:])]) + "\n")
    done = run("watch", "two.csv", "more.csv", "--by", "machine")
    assert re.findall(r"(\w+).csv, M(\d), 1,400 rows", done.stdout) == [("two", "1"), ("two", "2"), ("more", "3")]
    refused(run("watch", "two.csv", "--by", "machine=M9"), "two.csv: it has no rows of 'M9' in column 'machine'")
    refused(run("watch", "-", "--by", "machine", stdin="a"), "once for each machine", "--by machine=M1", code=2)
    refused(run("fit", "two.csv", "--by", "machine"), "--by machine=M1", code=2)


def test_tags_beside_several_numbers_are_refused_with_the_line_that_reads_them(folder, X):
    cells = [(i, k, x) for i, row in enumerate(X.tolist()) for k, x in enumerate(row)]
    rows = [f"{k},{1777593600 + 60 * i},{7919 * (3 * i + k) % 9973},{i % 7},{x}" for i, k, x in cells]
    Path("long.csv").write_text("\n".join(["itemid,clock,ns,user,value", *rows]) + "\n")
    result = run("watch", "long.csv", "--drop", "user")
    refused(result, f"long.csv: holds rows of {X.shape[1]} tags (itemid: 0, 1, 2", "or a monitor for each: ")
    line = re.search(r"a column for each: (.*?); or a monitor", result.stderr)[1]
    assert line.endswith("--drop user,ns --wide itemid")
    lines, _ = told(*shlex.split(line)[1:])
    assert (lines[-1]["rows"], lines[-1]["rows_read"]) == (len(X), len(X))
    # One monitor for all leaves out the column of machines, and what was left out before.
    Path("two.csv").write_text("\n".join(["machine,clock,ns,user,value", *rows]) + "\n")
    refused(run("watch", "two.csv", "--drop", "user"), "if they are alike: ", "two.csv --drop user,machine")


def test_several_files_are_one_stream_in_order_of_time(folder, X):
    write("b.csv", X[:900], first=0)
    write("a.csv", X[900:], first=900)
    whole, _ = told("watch", "all.csv")
    lines, said = told("watch", "a.csv", "b.csv", "--model", "m.npz")
    assert "read in order of time: b.csv, a.csv" in said
    assert [event["first_time"] for event in events(lines)] == [event["first_time"] for event in events(whole)]
    assert (worst(lines)["last_file"], worst(lines)["last_row"]) == ("a.csv", worst(whole)["last_row"] - 900)
    assert re.search(r"\(a.csv, line \d+\)", run("watch", "a.csv", "b.csv").stdout)
    # Both are known to the model.
    assert told("watch", "a.csv", "b.csv", "--model", "m.npz")[0][-1]["rows"] == 0


@pytest.mark.parametrize("name", ["o.csv", "o.jsonl"])
def test_results_of_a_watch_that_goes_on_are_kept(folder, X, name):
    lines = Path("all.csv").read_text().splitlines(keepends=True)
    told("watch", "all.csv", "--save", f"whole.{name}")
    args = ["watch", "all.csv", "--model", "m.npz", "--save", name]
    Path("all.csv").write_text("".join(lines[:700]))
    told(*args)
    saved = Path("m.npz").read_bytes()
    append("all.csv", *lines[700:])
    for n in (0, 100):
        # Rows that were scored after the model was saved are scored again; a kill may have cut the last.
        Path("m.npz").write_bytes(saved)
        if n:
            os.truncate(name, os.path.getsize(name) - n)
        told(*args)
        assert Path(name).read_bytes() == Path(f"whole.{name}").read_bytes()
    # Without the model all rows are scored as before; where results were trimmed, the rest is kept.
    Path("m.npz").unlink()
    told(*args)
    assert Path(name).read_bytes() == Path(f"whole.{name}").read_bytes()
    trimmed = "".join([*Path(name).read_text().splitlines(keepends=True)[:1], "1,2"])
    Path(name).write_text(trimmed)
    append("all.csv", lines[-1])
    assert "holds other rows from byte" in told(*args)[1]
    after = Path(name).read_text().removeprefix(trimmed + "\n")
    assert len(after.splitlines()) == 1
    os.remove(name)
    Path("all.csv").write_text("".join(lines))
    # And those of all files.
    write("a.csv", X[:300], first=1400)
    told("watch", "all.csv", "a.csv", "--save", f"both.{name}")
    for _ in range(2):
        told("watch", "all.csv", "a.csv", "--model", "n.npz", "--save", name)
        assert Path(name).read_bytes() == Path(f"both.{name}").read_bytes()


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_rows_without_times_have_results_of_the_same_columns(folder, X, form):
    write("a.csv", X[:300], first=0)
    write("b.csv", X[300:600])
    told("watch", "a.csv", "b.csv", "--save", f"o.{form}")
    lines = Path(f"o.{form}").read_text().splitlines()
    if form == "csv":
        assert {line.count(",") for line in lines} == {lines[0].count(",")}
        assert lines[301].startswith('"b.csv",2,,')
    else:
        rows = [json.loads(line) for line in lines]
        assert {tuple(row) for row in rows} == {tuple(rows[0])}
        assert [row["when"] is None for row in rows] == [False] * 300 + [True] * 300


def test_results_of_all_days_stand_in_one_file(folder, X):
    for day in range(3):
        write("day.csv", X[300 * day : 300 * (day + 1)], first=300 * day)
        os.rename("day.csv", f"{day}.csv")
        told("watch", f"{day}.csv", "--model", "m.npz", "--save", "o.csv")
    rows = [line.split(",")[0] for line in Path("o.csv").read_text().splitlines()]
    assert rows == ['"row"', *map(str, 3 * [*range(2, 302)])]
    # Without a model that goes on, or a file that grows, results are those of one run.
    for command in ("watch", "score"):
        told(command, "0.csv", *(["--model", "m.npz"] if command == "score" else []), "--save", "o.csv")
        assert len(Path("o.csv").read_text().splitlines()) == 301
    refused(run("watch", "0.csv", "--save", "1.csv"), "1.csv: expected no file, or results with the columns row")
    assert Path("1.csv").read_text().startswith('"when"')


def test_counters_and_gaps_are_known_to_a_model(folder, X):
    total = np.cumsum(np.random.default_rng(3).integers(50, 150, len(X)))
    write("x.csv", np.column_stack([X, total]), names=[*NAMES, "bytes"], first=0)
    said = told("watch", "x.csv", "--model", "m.npz")[1]
    assert re.search(r"by their differences +bytes; as counters", said)
    assert "--differences bytes" in said
    total[900:] += 1000
    write("x.csv", np.column_stack([X, total]), names=[*NAMES, "bytes"], first=0)
    assert re.search(r"  bytes: \+1[01]\d\d, expected \+\d\d", run("watch", "x.csv").stdout)
    # Alone, the rows of a later file would not show that.
    rows = Path("x.csv").read_text().splitlines()
    Path("y.csv").write_text("\n".join([rows[0], *rows[1101:1106]]) + "\n")
    assert events(told("score", "y.csv", "--model", "m.npz")[0]) == []
