"""Times of rows: of every kind they are the same instants, exactly, and tables give them up."""

from datetime import UTC, date, datetime, timedelta, timezone
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from streamkpca.rows.times import as_times, without_times

SECONDS = 1_780_000_000 + 10 * np.arange(5) + 120 * (np.arange(5) >= 3)
NAIVE = [datetime(1970, 1, 1) + timedelta(seconds=int(second)) for second in SECONDS]
EAST = timezone(timedelta(hours=5, minutes=30))
DATES = {
    "seconds": SECONDS.astype("datetime64[s]"),
    "nanoseconds": (SECONDS * 10**9).astype("datetime64[ns]"),
    "naive": NAIVE,
    "aware": [datetime.fromtimestamp(int(second), EAST) for second in SECONDS],
    "pandas": pd.Series(pd.to_datetime(SECONDS, unit="s", utc=True)).dt.tz_convert("Europe/Berlin"),
    "pandas, naive": pd.to_datetime(SECONDS, unit="s"),
    "polars": pl.Series([time.replace(tzinfo=UTC) for time in NAIVE]).dt.convert_time_zone("Asia/Tokyo"),
    "arrow": pa.chunked_array(
        [pa.array(SECONDS[:2], pa.timestamp("s", "UTC")), pa.array(SECONDS[2:], pa.timestamp("s", "UTC"))]
    ),
}


@pytest.mark.parametrize("kind", DATES)
def test_dates_of_any_kind_are_the_same_instants(kind):
    times, steps = as_times(DATES[kind], 5, np.datetime64(int(SECONDS[0]) - 7, "s"))
    assert times.dtype.kind == "M"
    np.testing.assert_array_equal(times, SECONDS.astype("datetime64[s]"))
    np.testing.assert_array_equal(steps, [7.0, 10.0, 10.0, 130.0, 10.0])


def test_numbers_and_durations_are_seconds():
    for given in (SECONDS, SECONDS.tolist(), (SECONDS * 1000).astype("timedelta64[ms]")):
        times, steps = as_times(given, 5, None)
        assert times.dtype == np.float64
        np.testing.assert_array_equal(times, SECONDS)
        np.testing.assert_array_equal(steps, [0.0, 10.0, 10.0, 130.0, 10.0])


def test_no_nanosecond_is_lost():
    exact = np.array(["2026-05-04T14:02:00.000000001", "2026-05-04T14:02:00.000000003"], dtype="datetime64[ns]")
    for given in (exact, pd.DatetimeIndex(exact).tz_localize("UTC"), list(pd.DatetimeIndex(exact))):
        times, steps = as_times(given, 2, np.datetime64("2026-05-04T14:02"))
        np.testing.assert_array_equal(times, exact)
        np.testing.assert_array_equal(steps, [1e-9, 2e-9])
    with pytest.raises(ValueError, match="ascending times but that of row 1 is 2e-09 before"):
        as_times(exact[::-1], 2, None)


@pytest.mark.parametrize("unit", ["D", "h", "s", "ms", "us", "ns"])
def test_every_step_from_1678_to_2261_is_known_to_the_nanosecond(unit):
    dates = [datetime(1678, 1, 1), datetime(1969, 12, 31, 23), datetime(2024, 2, 29, 1), datetime(2261, 12, 31, 23)]
    given = np.array(dates, dtype="M8[us]").astype(f"M8[{unit}]")
    times, steps = as_times(given, 4, np.datetime64("1678-01-01"))
    # Python counts in whole microseconds.
    whole = [datetime(*map(int, str(time.astype("M8[D]")).split("-"))) for time in given] if unit == "D" else dates
    exact = [0.0] + [(after - before) // timedelta(seconds=1) for before, after in pairwise(whole)]
    np.testing.assert_array_equal(steps, exact)
    np.testing.assert_array_equal(times, given)
    # Nanoseconds between these do not fit 64 bits.
    last = np.array(["2261-12-31T23:59:59.999999998", "2261-12-31T23:59:59.999999999"], "M8[ns]")
    span = datetime(2261, 12, 31, 23, 59, 59, 999999) - datetime(1678, 1, 1)
    assert as_times(last, 2, np.datetime64("1678-01-01"))[1].tolist() == [span.total_seconds(), 1e-9]


def test_units_that_are_no_durations_become_days():
    for given in (np.array(["2026-01", "2026-02"], dtype="datetime64[M]"), [date(2026, 1, 1), date(2026, 2, 1)]):
        times, steps = as_times(given, 2, None)
        assert [str(time) for time in times] == ["2026-01-01", "2026-02-01"]
        assert steps[1] == 31 * 86400.0
    assert as_times(np.array([0, 7000], dtype="datetime64[ps]"), 2, None)[1].tolist() == [0.0, 7e-9]


@pytest.mark.parametrize(
    ("times", "last", "error", "message"),
    [
        (pd.Series(pd.to_datetime(["2026-01-01", None])), None, ValueError, "finite times.* row 1 is NaT"),
        ([pd.Timestamp("2026-01-01"), pd.NaT], None, ValueError, "finite times.* row 1 is NaT"),
        ([0.0, np.inf], None, ValueError, "finite times.* row 1 is inf"),
        (np.array(["1677-12-31", "1678-01-01"], "M8[D]"), None, ValueError, "row 0 is 1677-12-31.*before 1678"),
        (np.array(["2261-12-31", "2262-01-01"], "M8[D]"), None, ValueError, "row 1 is 2262-01-01.*after 2261"),
        (["2026-01-01", "2026-01-02"], None, TypeError, "numbers or dates but got <U10 values"),
        ([1.0, 2.0], np.datetime64("2026-01-01"), TypeError, "one kind, but that of the last row was 2026-01-01"),
        (np.array(["2026-01-01"] * 2, "datetime64[D]"), 3.0, TypeError, "one kind.*was 3.0 and now comes 2026-01-01"),
        ([1.0, 2.0], 3.0, ValueError, "row 0 is 2 before"),
    ],
)
def test_times_without_meaning_are_refused(times, last, error, message):
    with pytest.raises(error, match=message):
        as_times(times, 2, last)


NUMBERS = np.arange(10.0).reshape(5, 2)
FRAME = pd.DataFrame({"a": NUMBERS[:, 0], "when": DATES["seconds"], "b": NUMBERS[:, 1]})


@pytest.mark.parametrize(
    "table",
    [
        FRAME,
        pl.from_pandas(FRAME),
        pa.table(FRAME),
        pa.RecordBatch.from_pandas(FRAME),
    ],
    ids=["pandas", "polars", "arrow table", "arrow batch"],
)
def test_a_column_of_any_table_gives_the_times(table):
    rows, times = without_times(table, "when")
    np.testing.assert_array_equal(as_times(times, 5, None)[0], DATES["seconds"])
    names = rows.schema.names if isinstance(rows, pa.Table | pa.RecordBatch) else rows.columns
    assert list(names) == ["a", "b"]
    with pytest.raises(ValueError, match=r"column of X but got 'time', and X has the columns \['a', 'when', 'b'\]"):
        without_times(table, "time")


def test_the_dates_of_an_index_are_times_unless_others_are_given():
    frame = FRAME.set_index("when")
    assert without_times(frame, None)[1] is frame.index
    assert without_times(frame, SECONDS)[1] is SECONDS
    assert without_times(FRAME, None)[1] is None
    for rows in (NUMBERS, NUMBERS.tolist()):
        assert without_times(rows, None) == (rows, None)
        with pytest.raises(ValueError, match="X has no names; pass"):
            without_times(rows, "when")


def test_rows_may_be_centuries_apart():
    days = [date(1700, 1, 1), date(2200, 1, 1)]
    _, steps = as_times(days, 2, None)
    assert steps.tolist() == [0.0, (days[1] - days[0]).total_seconds()]
