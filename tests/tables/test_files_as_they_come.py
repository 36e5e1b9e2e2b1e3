"""Files as loggers, historians and spreadsheets write them: each kind has its right names, numbers and times."""

import io
import itertools
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from test_tables_followed import Log

from streamkpca.tables import Asked, Table, TableError
from streamkpca.tables.source import find_code, recode
from streamkpca.tables.text_formats import decode, find_letters

NAN = np.nan
TEN = np.timedelta64(10, "m")
START = np.datetime64("2026-05-01T00:00")


def opened(data, **options):
    """Open a table that `watch` would open."""
    path = Path(tempfile.mkdtemp(), "table.csv")
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return Table(str(path), Asked(**{"looks": True, "missing": "marginal", "on_bad_rows": "skip"} | options))


def read(table, n_rows=1000):
    batches = list(table.batches(n_rows))
    times = None if batches[0].times is None else np.concatenate([batch.times for batch in batches])
    return (
        np.concatenate([batch.rows for batch in batches]),
        np.concatenate([batch.numbers for batch in batches]),
        times,
    )


def numbers(n=70):
    """Make numbers of three sensors that do not only rise."""
    X = np.round(np.random.default_rng(4).normal(size=(n, 3)) * [2.0, 5.0, 0.5] + [20.0, 101.0, 1.5], 3)
    X[0] = 20.5, 101.25, 1.5
    return X


def lines(form="{t:%Y-%m-%d %H:%M:%S},{0},{1},{2}", n=70, decimal="."):
    """Write a line for each row of `numbers`, ten minutes apart."""
    times = [(START + i * TEN).item() for i in range(n)]
    cells = [[repr(x).replace(".", decimal) for x in row] for row in numbers(n).tolist()]
    return [
        form.format(*row, t=time, i=i, s=1777593600 + 600 * i)
        for i, (time, row) in enumerate(zip(times, cells, strict=True))
    ]


def text(*above, form="{t:%Y-%m-%d %H:%M:%S},{0},{1},{2}", end="\n", decimal="."):
    return end.join([*above, *lines(form, decimal=decimal)]) + end


HEADS = {
    "TOA5": text(
        '"TOA5","Ridge","CR1000X","12345","Std.07","CPU:r.CR1X","51234","Ten"',
        '"TIMESTAMP","RECORD","a","b","c"',
        '"TS","RN","Deg C","mbar","A"',
        '"","","Avg","Smp","Max"',
        form='"{t}",{i},{0},{1},{2}',
        end="\r\n",
    ),
    "a row of units": text("time,a,b,c", "s,°C,kPa,V"),
    "a title": text("Plant 7, hall 3", "", "time,a,b,c"),
    "comments": text("# Start = 05/01/2026 00:00:00.0", "# Device = dongle", "time,a,b,c"),
    "names in a comment": text("# Made by a browser", "#", "# time,a,b,c"),
    "sep=": text("sep=;", "time;a;b;c", form="{t};{0};{1};{2}"),
    "LabVIEW": text(
        "LabVIEW Measurement\t",
        "Separator\tTab",
        "Decimal_Separator\t,",
        "***End_of_Header***\t",
        "",
        "Channels\t3\t\t\t",
        "Samples\t70\t70\t70\t",
        "***End_of_Header***\t\t\t\t",
        "X_Value\ta\tb\tc\tComment",
        form="{t}\t{0}\t{1}\t{2}\t",
        decimal=",",
    ),
    "dstat": text(
        '"Dstat 0.7.3 CSV output"',
        '"Author:","Some One",,,"URL:","http://example.org/"',
        "",
        '"system","total usage",,',
        '"time","a","b","c"',
    ),
    "annotated InfluxDB": text(
        "#group,false,false,true,false,false,false",
        "#datatype,string,long,dateTime:RFC3339,double,double,double",
        "#default,_result,,,,,",
        ",result,table,_time,a,b,c",
        form=",,0,{t:%Y-%m-%dT%H:%M:%S}Z,{0},{1},{2}",
    ),
    "names in two lines": text(
        "\t\tLow\tHigh\tc", "Date\tTime\ta\tb\t ", form="{t:%m/%d/%y}\t{t:%I:%M%p}\t{0}\t{1}\t{2}"
    ),
    "names that come again": text("time,a,b,b", form="{t},{0},{1},{2}") + "time,a,b,b\n",
    "a mark at the end of rows": text("time,a,b,c", form="{t},{0},{1},{2},"),
    "a mark at the end of names": text("time,a,b,c,"),
    "white space": text(" time         a  b   c", form="{t:%Y-%m-%dT%H:%M:%S}   {0}  {1} {2}"),
    "vmstat": text("procs ----memory---", " a  b   c UTC", form=" {0}  {1} {2} {t}"),
    "a bar": text("time|a|b|c", form="{t}|{0}|{1}|{2}"),
    "decimal commas": text("time;a;b;c", form="{t};{0};{1};{2}", decimal=","),
    "UTF-16": text("time,a,b,c").encode("utf-16"),
    "UTF-16 without a mark": text("time,a,b,c").encode("utf-16-le"),
    "UTF-16, the other way": text("time,a,b,c").encode("utf-16-be"),
    "UTF-32": text("time,a,b,c").encode("utf-32"),
    "a BOM": text("time,a,b,c").encode("utf-8-sig"),
    "Windows-1252": text("time [°],a,b,c").encode("cp1252"),
    "NUL": text("time,a,b,c").encode() + b"\0" * 512 + b"\n",
    "Ctrl-Z": text("time,a,b,c", end="\r\n").encode() + b"\x1a",
    "cells of several lines": text("time,a,b,c,note", form='{t},{0},{1},{2},"one\ntwo, three"'),
}  # fmt: skip


@pytest.mark.parametrize("kind", HEADS)
def test_what_stands_around_the_rows_is_no_row(kind):
    table = opened(HEADS[kind])
    names = {"names that come again": ("a", "b", "b.3"), "names in two lines": ("Low a", "High b", "c")}.get(
        kind, ("a", "b", "c")
    )
    assert tuple(name for name in table.names if name != "table") == names
    _, found, times = read(table)
    np.testing.assert_array_equal(found[:, [table.names.index(name) for name in names]], numbers())
    np.testing.assert_array_equal(times, START + np.arange(70) * TEN)
    assert (table.bad.n_read, table.bad.n_left_out) == ((71, 1) if kind == "names that come again" else (70, 0))


@pytest.mark.parametrize(
    "kind",
    ["TOA5", "LabVIEW", "names that come again", "vmstat", "UTF-16", "Windows-1252", "NUL", "cells of several lines"],
)
@given(cuts=st.lists(st.integers(1, 6000), max_size=5), n_rows=st.integers(1, 30))
def test_a_growing_file_is_read_as_the_whole_one(kind, cuts, n_rows):
    data = HEADS[kind]
    data = data.encode() if isinstance(data, str) else data
    ends = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    whole = read(opened(data))
    with tempfile.TemporaryDirectory() as folder:
        log = Log(Path(folder, "log"), [[data[a:b]] for a, b in itertools.pairwise(ends)])
        batches = list(log.batches(n_rows, looks=True, missing="marginal", on_bad_rows="skip"))
        for i, part in enumerate(zip(*(batch[:3] for batch in batches), strict=True)):
            np.testing.assert_array_equal(np.concatenate(part), whole[i])
        later = Table(
            str(log.path), Asked(looks=True, missing="marginal", on_bad_rows="skip", start=batches[0].position)
        )
        np.testing.assert_array_equal(read(later)[1], whole[1][len(batches[0].rows) :])


@pytest.mark.parametrize(
    ("cells", "expected", "options"),
    [
        (["1.5", "Bad", "I/O Timeout", "---", "2", "3"], [1.5, *[NAN] * 3, 2.0, 3.0], {}),
        (["1.5", "#DIV/0!", "<0.05", "inf", "-Inf", "2", "3", "4"], [1.5, *[NAN] * 4, 2.0, 3.0, 4.0], {}),
        (["Bad", "Bad", "Bad", "Bad", "1.5"], [*[NAN] * 4, 1.5], {}),
        (["1.5", "", "NA", "nan", "null", "#N/A", "2"], [1.5, *[NAN] * 5, 2.0], {}),
        (["1,993582E+01", "2,1E-02", "-3"], [19.93582, 0.021, -3.0], {}),
        (["1 103,15", "1\u00a0020,25", "1\u202f164,42", "885,64"], [1103.15, 1020.25, 1164.42, 885.64], {}),
        (["1'103.15", "1\u2019020.25", "885.64"], [1103.15, 1020.25, 885.64], {}),
        (["1.103,15", "12.345.678", "885,6"], [1103.15, 12345678.0, 885.6], {}),
        (["1,103.15", "12,345,678", "885.6"], [1103.15, 12345678.0, 885.6], {}),
        (["1,500", "2,250", "3"], [1.5, 2.25, 3.0], {}),
        (["1.500", "2.250", "3"], [1.5, 2.25, 3.0], {}),
        (["1.500", "2.250", "3"], [1500.0, 2250.0, 3.0], {"decimal": ","}),
        (["42.3%", "7%", "0%"], [42.3, 7.0, 0.0], {}),
        (["3 GiB", "512 MiB", "1.5 GiB"], [3.0, 0.5, 1.5], {}),
        (["48.9 kB/s", "1.2 MB/s", "3 kB/s"], [48.9, 1200.0, 3.0], {}),
        (["1.5 ms", "2 s", "900 µs", "3 ms"], [1.5, 2000.0, 0.9, 3.0], {}),
        (["\u22125.5", "+3", " 4 "], [-5.5, 3.0, 4.0], {}),
        (["ON", "off", "On", "unavailable"], [1.0, 0.0, 1.0, NAN], {}),
        (["open", "closed", "open"], [1.0, 0.0, 1.0], {}),
        (["yes", "no", ""], [1.0, 0.0, NAN], {}),
    ],
)
def test_cells_are_numbers_or_gaps(cells, expected, options):
    text = "t;x;y\n" + "".join(f"{i};{cell};7\n" for i, cell in enumerate(cells))
    table = opened(text, time=["t"], **options)
    np.testing.assert_allclose(read(table)[1], np.column_stack([expected, np.full(len(cells), 7.0)]), rtol=1e-12)
    n_odd = sum(
        np.isnan(x) and cell.lower() not in ("", "na", "nan", "null", "#n/a")
        for x, cell in zip(expected, cells, strict=True)
    )
    assert (table.bad.n_read, table.bad.n_left_out, table.bad.odd_cells["x"]) == (len(cells), 0, n_odd)


def test_cells_that_are_no_numbers_are_told_with_the_first_and_while_a_file_grows(tmp_path):
    log = Log(tmp_path / "log", [[b"x,y\n1,2\n3,-1.8e308\n"], [b"4,I/O Timeout\n5\n"], [b"1e60,1\n" * 9]])
    *_, _ = log.batches(missing="marginal", on_bad_rows="skip")
    path = str(tmp_path / "log")
    assert log.notes == [
        f"{path}, column 'y': cells taken for gaps: 1, the first: line 3 holds '-1.8e308', which is no number",
        f"{path}, line 5: expected 2 cells but got 1; left out, 1 so far",
        f"{path}, column 'x': cells taken for gaps: 9, the first: line 6 holds '1e60', which is no number",
    ]


TIMES = [
    ("2026050100", "2026050101", "%Y%m%d%H", "2026-05-01T00"),
    ("202605012355", "202605020000", "%Y%m%d%H%M", "2026-05-01T23:55"),
    ("20260501235500", "20260502000000", "%Y%m%d%H%M%S", "2026-05-01T23:55"),
    ("Fri May  1 00:00:00 2026", "Fri May  1 00:10:00 2026", "%a %b %d %H:%M:%S %Y", "2026-05-01"),
    ("01-May-26 00:00:00", "01-May-26 00:10:00", "%d-%b-%y %H:%M:%S", "2026-05-01"),
    ("2026-05-01T08:00:00+02:00", "2026-05-01T08:10:00+02:00", "%Y-%m-%d %H:%M:%S", "2026-05-01T06:00"),
    ("2026-05-01 08:00:00 CEST", "2026-05-01 08:10:00 CEST", "%Y-%m-%d %H:%M:%S", "2026-05-01T06:00"),
    ("2026-05-01 08:00:00 UTC", "2026-05-01 08:10:00 UTC", "%Y-%m-%d %H:%M:%S", "2026-05-01T08:00"),
    ("1777593600", "1777593615", "s", "2026-05-01"),
    ("1777593600.25", "1777593615.25", "s", "2026-05-01T00:00:00.25"),
    ("1777593600123", "1777593615123", "ms", "2026-05-01T00:00:00.123"),
    (
        "2026/05/01 00:00:00.522772484",
        "2026/05/01 00:10:00.522772484",
        "%Y/%m/%d %H:%M:%S",
        "2026-05-01T00:00:00.522772484",
    ),
    ("2026-05-01 10:00:00,250", "2026-05-01 10:10:00,250", "%Y-%m-%d %H:%M:%S", "2026-05-01T10:00:00.250"),
    ("5/1/26 12:00a", "5/1/26 12:10a", "%m/%d/%y %I:%M:%S %p", "2026-05-01"),
    ("5/31/2026 2:30 PM", "5/31/2026 2:40 PM", "%m/%d/%Y %I:%M:%S %p", "2026-05-31T14:30"),
    ("31/05/2026 2:30:00 p.\u00a0m.", "31/05/2026 2:40:00 p.\u00a0m.", "%d/%m/%Y %I:%M:%S %p", "2026-05-31T14:30"),
    ("31.05.2026 10:00", "31.05.2026 10:10", "%d.%m.%Y %H:%M:%S", "2026-05-31T10:00"),
    ("31/05/2026 18.00.00", "31/05/2026 18.10.00", "%d/%m/%Y %H.%M.%S", "2026-05-31T18:00"),
    ("09/02/2026 23:55", "10/02/2026 00:05", "%d/%m/%Y %H:%M:%S", "2026-02-09T23:55"),
    ("02/09/2026 23:55", "02/10/2026 00:05", "%m/%d/%Y %H:%M:%S", "2026-02-09T23:55"),
    ("2/12/2026 03:00:00 PM", "2/12/2026 03:00:01 PM", "%m/%d/%Y %I:%M:%S %p", "2026-02-12T15:00"),
    ("2/12/2026 15:00:00", "2/12/2026 15:00:01", "%d/%m/%Y %H:%M:%S", "2026-12-02T15:00"),
    ("01/May/2026:10:00:00 +0000", "01/May/2026:10:10:00 +0000", "%d/%b/%Y:%H:%M:%S", "2026-05-01T10:00"),
]


@pytest.mark.parametrize(("first", "second", "form", "expected"), TIMES)
def test_times_are_found_in_the_form_in_which_they_are_written(first, second, form, expected):
    text = f"when;x\n{first};1.5\n{second};1.25\n"
    table = opened(text)
    assert (table.reading.time, table.reading.time_format, table.names) == (("when",), form, ("x",))
    times = read(table)[2]
    assert times[0] == np.datetime64(expected)
    assert times[0] < times[1]
    # The same where the column is named, with and without its form, and without a look.
    for options in ({"time_format": form}, {}, {"looks": False}):
        np.testing.assert_array_equal(read(opened(text, time=["when"], **options))[2], times)


def test_a_day_and_its_hour_are_one_time_in_any_order_and_also_if_they_look_like_numbers():
    for names, first, second, form in (
        ("Date;Time", "20260501;1200", "20260501;1210", "%Y%m%d %H%M"),
        ("Date;Time", "20260501;1200", "20260501;1210", None),
        ("Date;Time", "1.5.2026;12:00:00.000", "1.5.2026;12:10:00.000", None),
        ("Time;Date", "12:00;2026-05-01", "12:10;2026-05-01", None),
        ("YY;MM;DD;hh;mm", "2026;05;01;12;00", "2026;05;01;12;10", None),
    ):
        text = f"{names};x\n{first};1.5\n{second};1.25\n"
        named = names.split(";")
        for options in ({"time": named, "time_format": form}, {"time": named}, {"time": named, "looks": False}, {}):
            table = opened(text, **options)
            assert table.names == ("x",)
            np.testing.assert_array_equal(read(table)[2], np.array(["2026-05-01T12:00", "2026-05-01T12:10"], "M8[ns]"))


def test_the_column_that_moves_is_the_time():
    table = opened(text("commissioned,time,a,b,c", form="2020-01-01,{t},{0},{1},{2}"))
    assert (table.reading.time, table.names) == (("time",), ("a", "b", "c"))


def test_rows_that_are_not_in_order_of_time_are_put_in_order_where_the_file_allows(monkeypatch):
    for order in (slice(None, None, -1), np.random.default_rng(0).permutation(70)):
        rows = np.array(lines(), object)[order]
        table = opened("\n".join(["time,a,b,c", *rows]) + "\n")
        found_rows, found, times = read(table, 7)
        np.testing.assert_array_equal(found, numbers())
        np.testing.assert_array_equal(times, START + np.arange(70) * TEN)
        np.testing.assert_array_equal(found_rows, np.argsort(np.arange(70)[order]) + 2)
    # Without a look, the rows are those of the file.
    np.testing.assert_array_equal(
        read(opened("\n".join(["time,a,b,c", *rows]), looks=False, time=["time"]))[0], np.arange(2, 72)
    )


@pytest.mark.parametrize("sentinel", ["-999", "-9999", "65535"])
def test_numbers_that_stand_for_gaps_are_gaps(sentinel):
    X, rows = numbers(), lines()
    for i in (3, 20, 40, 60):
        rows[i] = rows[i].replace(f",{X[i, 1]},", f",{sentinel},")
        X[i, 1] = NAN
    table = opened("\n".join(["time,a,b,c", *rows]) + "\n")
    np.testing.assert_array_equal(read(table)[1], X)
    assert (table.bad.odd_cells, table.look.sentinels["b"]) == ({"b": 4}, (float(sentinel),))
    assert not np.isnan(read(opened("\n".join(["time,a,b,c", *rows]) + "\n", gaps=()))[1]).any()
    # One that comes after the first rows is as far from the others.
    late = opened("\n".join(["time,a,b,c", *lines(), "2026-05-02 00:00:00,20,-999,1.5"]) + "\n")
    assert np.isnan(read(late)[1][-1, 1])


def test_numbers_that_may_be_meant_are_kept():
    for values in ([0] * 60 + [1] * 10, [0, 1] * 35, [5] * 70, [*range(60, 0, -1), *[200] * 10], [1e6, 1e-3, 5.0] * 20):
        table = opened("t,x\n" + "".join(f"{i}.5,{x}\n" for i, x in enumerate(values)), time=["t"])
        assert not np.isnan(read(table)[1]).any()


def test_counters_are_watched_by_their_differences_also_where_they_begin_again():
    steps = np.random.default_rng(1).integers(50, 150, 80)
    total = np.cumsum(steps)
    total[40:] -= total[40] - 30
    cells = [str(x) for x in total]
    cells[10] = ""
    rows = [
        f"{i},{i * 7},{cell},{i % 5}.5,{x}" for i, (cell, x) in enumerate(zip(cells, numbers(80)[:, 0], strict=True))
    ]
    data = "\n".join(["id,t,bytes,a,b", *rows]) + "\n"
    table = opened(data, time=["t"])
    assert (table.reading.differences, table.look.left_out, table.names) == (
        ("bytes",),
        {"numbering rows": ("id",)},
        ("bytes", "a", "b"),
    )
    expected = np.array([NAN, *steps[1:]], float)
    expected[40], expected[10], expected[11] = 30.0, NAN, (total[11] - total[9]) / 2
    np.testing.assert_array_equal(read(table)[1][:, 0], expected)
    # A reading that goes on knows the last number.
    for batch in table.batches(11):
        later = opened(data, time=["t"], start=batch.position, known=table.reading)
        if batch.rows[-1] < 81:
            np.testing.assert_array_equal(read(later)[1][:, 0], expected[batch.rows[-1] - 1 :])
    kept = opened(data, time=["t"], differences=())
    assert kept.names == ("bytes", "a", "b")
    assert read(kept)[1][0, 0] == total[0]
    with pytest.raises(TableError, match="no column 'byte'; it has 5: id, t, bytes"):
        opened(data, time=["t"], differences=("byte",))


def test_long_tables_are_made_wide_by_their_tags():
    X, rows = numbers(), ["entity_id,state,last_changed"]
    for i, (x, y, _) in enumerate(X.tolist()):
        when = (START + i * TEN).item()
        rows += [f"flow,{x},{when}.000Z"] if i != 5 else []
        rows += [f"return,{y if i != 7 else 'unavailable'},{when}.100Z"]
    table = opened("\n".join(rows) + "\n")
    assert (table.names, table.reading.wide) == (("flow", "return"), ("entity_id", "state"))
    expected = X[:, :2].copy()
    expected[5, 0], expected[7, 1] = NAN, NAN
    _, found, times = read(table, 9)
    np.testing.assert_array_equal(found, expected)
    assert times[1] == START + TEN
    assert (table.bad.n_read, table.bad.n_left_out, table.bad.odd_cells) == (70, 0, {"return": 1})
    # A tenth of a second between two tags is not the usual step.
    assert table.notes == []
    table = opened("\n".join([*rows, "other,1,2026-05-02T00:00:00.000Z"]) + "\n", known=table.reading)
    np.testing.assert_array_equal(read(table)[1], expected)
    assert (table.bad.n_read, table.bad.kinds) == (71, {"another tag": 1})
    # A later file may hold one tag only.
    later = opened("entity_id,state,last_changed\nreturn,3,2026-05-02T00:00:00.000Z\n", known=table.reading)
    np.testing.assert_array_equal(read(later)[1], [[NAN, 3.0]])
    with pytest.raises(
        TableError, match=r"expected one column of values beside the tags in 'a' but got 2: b, c; .*--drop"
    ):
        opened("a,b,c\nx,1.5,2.5\ny,2.5,3\n", wide="a")


def test_machines_are_found_and_read_one_by_one():
    rows = [line.replace(",", f",M{k},", 1) for line in lines() for k in (1, 2)]
    data = "\n".join(["time,machine,a,b,c", *rows, "2026-05-02 00:00:00,,1,2,3"]) + "\n"
    assert opened(data).look.machines == ("machine", ("M1", "M2"), ())
    table = opened(data, by=("machine", "M2"))
    assert (table.names, table.key, table.list_texts("machine")) == (("a", "b", "c"), "M2", ["M1", "M2"])
    found_rows, found, _ = read(table)
    np.testing.assert_array_equal(found, numbers())
    np.testing.assert_array_equal(found_rows, np.arange(3, 143, 2))
    assert (table.bad.n_read, table.bad.kinds) == (71, {"no machine": 1})
    # A status beside a single series names no machine.
    assert opened(text("time,a,b,c,status", form="{t},{0},{1},{2},S{i}")).look.machines is None


def test_numbers_may_tell_of_tags_and_a_second_time_is_no_value_of_them():
    rows = [
        f"{k};{(START + i * TEN).item():%d.%m.%Y %H:%M:%S};{x};1;{46143 + i / 144}"
        for i, row in enumerate(numbers().tolist())
        for k, x in enumerate(row, start=101)
    ]
    table = opened("\n".join(["item_id;when;value;valid;serial", *rows]) + "\n")
    assert (table.names, table.reading.wide) == (("101", "102", "103"), ("item_id", "value"))
    np.testing.assert_array_equal(read(table)[1], numbers())
    # Numbers without such a name are numbers.
    assert opened("\n".join(["load;when;value;valid;serial", *rows]) + "\n").reading.wide is None


READINGS = {
    "a switch": lambda i: i * i // 7 % 2,
    "fractions": lambda i: (0.25, 0.5, 1.75)[i % 3],
    "states in order": lambda i: i // 40,
    "a ramp": lambda i: 7 * i % 60,
    "counts": lambda i: 7919 * i % 41,
}


@pytest.mark.parametrize("rows_at_a_time", [0, 1, 3])
@pytest.mark.parametrize("kind", READINGS)
@pytest.mark.parametrize(("name", "n_others"), [("signal", 1), ("machine", 3), ("item_id", 1)])
def test_readings_are_no_machines_or_tags_whatever_their_names(name, n_others, kind, rows_at_a_time):
    X, header = numbers(160)[:, :n_others], [name, *"abc"[:n_others]]
    rows = [[str(READINGS[kind](i)), *map(str, row)] for i, row in enumerate(X.tolist())]
    if rows_at_a_time:
        header = ["time", *header]
        rows = [[f"{(START + i // rows_at_a_time * TEN).item()}", *row] for i, row in enumerate(rows)]
    table = opened("\n".join(map(",".join, [header, *rows])) + "\n")
    assert (table.reading.wide, table.look.machines) == (None, None)
    assert table.names == (name, *"abc"[:n_others])
    np.testing.assert_array_equal(read(table)[1][:, 1:], X)


def test_whole_numbers_tell_of_machines_that_have_a_row_at_most_times():
    ends = {1: 70, 2: 50, 3: 60}
    rows = [f"{k},{i},{x},{y},{z}" for k, end in ends.items() for i, (x, y, z) in enumerate(numbers(end).tolist())]
    data = "\n".join(["unit,time,a,b,c", *rows]) + "\n"
    assert opened(data).look.machines == ("unit", ("1", "2", "3"), ())
    np.testing.assert_array_equal(read(opened(data, by=("unit", "2")))[1], numbers(50))


def test_a_tag_may_have_a_name_and_a_number():
    cells = [(i, k, x) for i, row in enumerate(numbers().tolist()) for k, x in enumerate(row)]
    rows = [f"{k},{('temp', 'press', 'flow')[k]},{(START + i * TEN).item()}.{k}00,{x}" for i, k, x in cells]
    table = opened("\n".join(["item_id,item_name,when,value", *rows]) + "\n")
    assert (table.names, table.reading.wide) == (("temp", "press", "flow"), ("item_name", "value"))


def test_names_that_come_again_above_every_row_are_names():
    rows = (f"05/01/2026\nDevice   a   b   c\nsda {x} {y} {z}\n" for x, y, z in numbers().tolist())
    table = opened("\n".join(["Linux 6.1.0", *rows]))
    assert table.names == ("a", "b", "c")
    np.testing.assert_array_equal(read(table)[1], numbers())


def test_a_day_of_a_meter_in_each_line_is_refused_with_the_page_that_has_a_script():
    head = "100,NEM12,202605020000,A,B\n200,MTR,E1,E1,E1,,S1,kWh,30,\n"
    days = "".join(f"300,202605{day:02},{','.join(['1.5'] * 48)},A,,,,\n" for day in range(1, 9))
    with pytest.raises(TableError, match=r"a day of a meter in each line \(NEM12\).*docs/command.md"):
        opened(head + days)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_dates_of_a_file_with_types_are_its_times_and_other_dates_are_left_out(tmp_path, unit):
    X, path = numbers(), tmp_path / "a.parquet"
    times = (START + np.arange(len(X)) * TEN).astype(f"M8[{unit}]")
    columns = {"when": times, "made": times - np.timedelta64(7, "D"), "day": times.astype("M8[D]")}
    columns |= dict(zip("abc", X.T, strict=True))
    parquet.write_table(pa.table(columns), path)
    table = Table(str(path), Asked(looks=True, missing="marginal", on_bad_rows="skip"))
    _, found, read_times = read(table)
    assert (table.names, table.reading.time) == (("a", "b", "c"), ("when",))
    np.testing.assert_array_equal(found, X)
    np.testing.assert_array_equal(read_times, times)


def test_tags_that_come_one_after_the_other_are_put_side_by_side():
    X, header = numbers(), ",result,table,_time,_value,_field\n"
    parts = (
        "#group,false,false,false,false,true\n" + header + "".join(
            f",,{k},{(START + i * TEN).item():%Y-%m-%dT%H:%M:%S}Z,{x},{name}\n" for i, x in enumerate(X[:, k].tolist())
        )
        for k, name in enumerate(("temp", "press", "flow"))
    )  # fmt: skip
    table = opened("\n".join(parts))
    assert (table.names, table.reading.wide) == (("temp", "press", "flow"), ("_field", "_value"))
    np.testing.assert_array_equal(read(table)[1], X)
    assert (table.bad.n_read, table.bad.kinds) == (74, {"a comment": 2, "a line above the rows again": 2})


def test_one_column_and_names_of_all_but_the_numbers_of_rows_are_read():
    assert read(opened("flow\n1,5\n2,25\n0,5\n"))[1].tolist() == [[1.5], [2.25], [0.5]]
    table = opened('"flow" "temp"\n' + "".join(f'"{i}" {i % 7}.5 {i % 5}\n' for i in range(1, 40)))
    assert (table.names, table.look.left_out) == (("flow", "temp"), {"numbering rows": ("0",)})


def test_a_long_silence_is_told():
    rows = lines()
    table = opened("\n".join(["time,a,b,c", *(row.replace("2026-05-01 1", "2026-05-03 1") for row in rows)]) + "\n")
    read(table, 20)
    assert table.notes == [f"{table.path}: no rows from 2026-05-01T09:50:00 to 2026-05-03T10:00:00"]
    quiet = opened("\n".join(["time,a,b,c", *rows]) + "\n")
    read(quiet)
    assert quiet.notes == []


def test_values_inside_others_have_names_with_points():
    data = "".join(
        f'{{"name": "p", "timestamp": {1777593600 + i}, "fields": {{"a": {x}, "b": [{y}, 1]}}}}\n'
        for i, (x, y, _) in enumerate(numbers().tolist())
    )
    table = opened(data)
    assert (table.names, table.reading.time_format) == (("fields.a", "fields.b.0", "fields.b.1"), "s")
    np.testing.assert_array_equal(read(table)[1][:, :2], numbers()[:, :2])


def test_decimal_commas_between_commas_are_refused_with_the_reason():
    with pytest.raises(
        TableError, match=r"expected 7 names, .* but there are 5 names .*; where commas are decimal marks too"
    ):
        opened("Time,A,B,C,D\n" + "".join(f"2026-05-01T00:0{i}:00,19,9,101,48,9,1\n" for i in range(9)))


def sheet(rows) -> bytes:
    """Write a spreadsheet as small as they come: the first number of a row has the style of dates."""
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"

    def related(*targets) -> str:
        kinds = {"xl/workbook.xml": "officeDocument", "styles.xml": "styles", "one.xml": "worksheet"}
        links = (f'Id="r{i}" Type="{office}/{kinds[one]}" Target="{one}"' for i, one in enumerate(targets))
        inside = "".join(f"<Relationship {one}/>" for one in links)
        return f'<Relationships xmlns="{package}/relationships">{inside}</Relationships>'

    def written(cell, j) -> str:
        if isinstance(cell, str):
            return f'<c t="inlineStr"><is><t>{cell}</t></is></c>'
        return f'<c s="{int(j == 0)}"><v>{cell}</v></c>'

    cells = ("".join(written(cell, j) for j, cell in enumerate(row)) for row in rows)
    data = "".join(f"<row>{row}</row>" for row in cells)
    named, styles = '<sheet name="One" sheetId="1" r:id="r0"/>', '<xf numFmtId="0"/><xf numFmtId="22"/>'
    files = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"/>',
        "_rels/.rels": related("xl/workbook.xml"),
        "xl/_rels/workbook.xml.rels": related("one.xml", "styles.xml"),
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>{named}</sheets></workbook>',
        "xl/styles.xml": f'<styleSheet xmlns="{main}"><cellXfs>{styles}</cellXfs></styleSheet>',
        "xl/one.xml": f'<worksheet xmlns="{main}"><sheetData>{data}</sheetData></worksheet>',
    }  # fmt: skip
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return sink.getvalue()


def test_the_rows_of_a_spreadsheet_are_read():
    pytest.importorskip("python_calamine")
    rows = [["time", "a", "b", "c"], ["", "°C", "kPa", "V"]]
    rows += [[46143 + i / 144, *row] for i, row in enumerate(numbers().tolist())]
    table = opened(sheet(rows))
    found_rows, found, times = read(table)
    assert table.names == ("a", "b", "c")
    np.testing.assert_array_equal(found, numbers())
    np.testing.assert_array_equal(times.astype("M8[s]"), START + np.arange(70) * TEN)
    np.testing.assert_array_equal(found_rows, np.arange(3, 73))


# Whatever the bytes, no row is lost in silence.

PIECES = [
    b"1,2,3\n",
    b"2026-05-01 00:00:00,1.5,2\n",
    b"a,b,c\n",
    b",,\n",
    b'"x\n',
    b'1,"2\n3",4\n',
    b"# no\n",
    b"\n",
    b"\r\n",
    b"5,Bad,6\n",
    b"\0\0\n",
    b"7,8\n",
    b"\xff,1,2\n",
    b"-999,1,2\n",
    b"4,5,6,\n",
    b"9",
]


@given(
    pieces=st.lists(st.sampled_from(PIECES) | st.binary(max_size=12), min_size=1, max_size=60),
    n_rows=st.integers(1, 20),
)
def test_rows_read_are_rows_handed_out_and_rows_left_out(pieces, n_rows):
    data = b"".join(pieces)
    try:
        table = opened(data)
        found = list(table.batches(n_rows))
    except TableError:
        return
    n_kept = sum(len(batch.rows) for batch in found)
    assert table.bad.n_read == n_kept + table.bad.n_left_out == n_kept + sum(table.bad.kinds.values())
    # Lines that hold anything, below those above the rows, are rows, or parts of one.
    if table.unit == "line" and b'"' not in data and not table.reading.wide:
        whole = b"".join(recode(iter([data]), find_code(data)))
        texts = decode(whole, find_letters(whole)).split("\n")
        assert table.bad.n_read == sum(bool(text.strip()) for text in texts[table.reader.n_above :])
    if table.unit == "line":
        told = {int(one.split(", line ")[1].split(":")[0]) for one in table.bad.examples}
        assert not told & {int(row) for batch in found for row in batch.rows}
