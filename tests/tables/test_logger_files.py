"""Files of loggers: every form that `logger_files` makes is read rightly, or refused with a remedy that reads it."""

import csv
import io

import numpy as np
import pytest
from logger_files import ABC, FORMS, REFUSED, N, numbers, write
from test_files_as_they_come import opened, read

from streamkpca.tables import TableError


@pytest.mark.parametrize("kind", FORMS)
def test_each_form_has_its_names_times_and_numbers(kind):
    form = FORMS[kind]
    table = opened(form.data)
    _, found, times = read(table)
    assert table.names == form.names
    assert table.bad.n_left_out == form.left_out
    assert table.bad.n_read == len(found) + form.left_out
    if form.times:
        # Days with six decimals tell tenths of a second.
        np.testing.assert_array_less(np.abs(times[:2] - np.array(form.times, "M8[ns]")), np.timedelta64(50, "ms"))
        assert (np.diff(times) > np.timedelta64(0, "s")).all()
    expected = np.array(numbers())
    if kind == "short rows":
        expected[2::7, 2] = np.nan
    elif kind == "NUL inside a line":
        expected[6, 0] = np.nan
        assert (dict(table.bad.odd_cells), table.reader.n_replaced) == ({"a": 1}, 1)
    if kind == "a meter that rises slowly":
        assert table.reading.differences == ("total",)
    elif "apart" not in kind:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_is_read_once_the_remedy_was_taken(kind):
    data, message, remedy, names = REFUSED[kind]
    with pytest.raises(TableError, match=message):
        opened(data)
    if not remedy:
        turned = io.StringIO()
        csv.writer(turned).writerows(zip(*csv.reader(io.StringIO(data)), strict=True))
        data = turned.getvalue()
    table = opened(data, **remedy)
    assert table.names == names
    assert len(read(table)[1]) > N / 2


def test_options_say_what_the_contents_do_not():
    for data, options in (
        (write("x,x,x,x", "time,a,b,c"), {"names_line": 2}),
        (write("x,x,x,x", "time,a,b,c"), {"skip": 1}),
        (write("x,x,x,x"), {"names": ["time", *ABC]}),
        (write("# time a b c".replace(" ", ","), "other,x,y,z").replace("#,", "# "), {"names_line": 1}),
    ):
        table = opened(data, **options)
        assert table.names == ABC
        np.testing.assert_array_equal(read(table)[1], numbers())
    # The line above the rows, whatever it looks like.
    table = opened(write("10,20,30", form="{0},{1},{2}"), header=True)
    assert (table.names, len(read(table)[1])) == (("10", "20", "30"), N)
    table = opened(write("time,é,b,c").encode("cp850"), encoding="cp850")
    assert table.names == ("é", "b", "c")
    with pytest.raises(TableError, match="--encoding klingon: is not known; give one such as utf-8"):
        opened(write(), encoding="klingon")


def test_one_bad_byte_changes_no_other_name_and_is_counted():
    data = write("time,machine,a,b,c", form="{t},Pümpe,{0},{1},{2}").encode()
    table = opened(data.replace("ü".encode(), b"\xfc", 1), by=("machine", "Pümpe"))
    assert len(read(table)[1]) == N - 1
    assert any("bytes that are no text, in its code: 1" in one for one in table.bad.describe())


def test_a_date_with_two_readings_has_both():
    table = opened(write_day := write("Time,a,b,c", form="{t:%m/%d/%Y %I:%M:%S %p},{0},{1},{2}", days=1)[: 60 * 40])
    assert write_day
    assert (table.reading.time_format, table.look.other) == (
        "%m/%d/%Y %I:%M:%S %p",
        ("%d/%m/%Y %I:%M:%S %p", np.datetime64("2026-01-05T00:00")),
    )


@pytest.mark.parametrize(
    ("names", "words", "options"),
    [
        ("time,a,a_Q,b,b_Q,c,c_Q", ("Good", "Bad"), {}),
        ("time,a,q1,b,q2,c,q3", ("192", "24"), {"quality": ["q1", "q2", "q3"]}),
        ("time,a,x,b,y,c,z", ("A", "E"), {"quality": ["x", "y", "z"]}),
        ("time,a,a_Q,b,b_Q,c,c_Q", ("Good", "Uncertain"), {}),
    ],
)
def test_values_of_bad_quality_are_gaps_and_counted(names, words, options):
    lines = write(names, form=f"{{t}},{{0}},{words[0]},{{1}},{words[0]},{{2}},{words[0]}").split("\n")
    lines[5] = lines[5].replace(words[0], words[1], 1)
    table = opened("\n".join(lines), **options)
    expected = np.array(numbers())
    if words[1] != "Uncertain":
        expected[4, 0] = np.nan
    assert table.names == ABC
    np.testing.assert_array_equal(read(table)[1], expected)
    assert dict(table.bad.odd_cells) == ({} if words[1] == "Uncertain" else {"a": 1})
    kept = opened("\n".join(lines), quality=(), drop=[name for name in names.split(",")[2::2]])
    assert not np.isnan(read(kept)[1]).any()


def test_devices_that_take_turns_are_found_without_a_time():
    rows = "".join(f"{i % 2},{x},{y},{z}\n" for i, (x, y, z) in enumerate(numbers()))
    assert opened("gpu,a,b,c\n" + rows).look.machines == ("gpu", ("0", "1"), ())


@pytest.mark.parametrize("n_rows", [7, 1000])
def test_a_counter_that_reads_zero_once_rises_as_before_however_the_file_is_cut(n_rows):
    total = np.cumsum(np.random.default_rng(3).integers(5, 15, 4 * N))
    read_out = total.copy()
    read_out[[200, 300]] = 0
    data = "t,a,total\n" + "".join(f"{i},{i % 7},{x}\n" for i, x in enumerate(read_out))
    table = opened(data, time=["t"])
    rises = read(table, n_rows)[1][:, 1]
    expected = np.diff(total, prepend=np.nan)
    for i in (200, 300):
        expected[i], expected[i + 1] = 0.0, total[i + 1] - total[i - 1]
    assert table.reading.differences == ("total",)
    np.testing.assert_array_equal(rises, expected)


def test_counters_that_fall_are_read_by_their_differences():
    data = "t,a,left\n" + "".join(f"{i},{i % 7},{5000 - i * i // 100}\n" for i in range(5 * N))
    table = opened(data, time=["t"])
    assert table.reading.differences == ("left",)
    assert (read(table)[1][1:, 1] <= 0.0).all()


def test_a_gauge_that_repeats_a_number_far_outside_is_no_gap_and_999_below_zero_is_one():
    values = [20.0 + i % 9 for i in range(N)]
    values[50:60] = [85.0] * 10
    table = opened("t,x,y\n" + "".join(f"{i},{x},{-999 if i == 70 else i % 11 * 300}\n" for i, x in enumerate(values)))
    found = read(table)[1]
    np.testing.assert_array_equal(found[:, 0], values)
    assert np.flatnonzero(np.isnan(found[:, 1])).tolist() == [70]
