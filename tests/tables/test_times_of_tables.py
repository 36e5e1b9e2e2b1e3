"""Times of tables are the instants that Python's own calendar says, to the last digit, in all years that they have."""

from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from streamkpca.tables.times import EPOCHS, read_times

BEGIN = datetime(1970, 1, 1)
LAST = datetime(2261, 12, 31, 23, 59, 59)
DATES = [datetime(1678, 1, 1), datetime(1969, 12, 31, 23, 59, 59), BEGIN, datetime(2024, 2, 29), LAST]
# Beyond, nanoseconds since 1970 would be other dates.
BEYOND = [datetime(1677, 12, 31, 23, 59, 59), datetime(2262, 1, 1), datetime(1, 1, 1), datetime(9999, 12, 31)]


def nanoseconds(date):
    return (date - BEGIN) // timedelta(microseconds=1) * 1000


def test_digits_of_text_are_exact():
    digits = ["000000001", "987654321"]
    cells = [f"{date.isoformat()}.{fraction}" for date in DATES for fraction in digits]
    times, _ = read_times([pa.array(cells)], "%Y-%m-%d %H:%M:%S")
    assert times.astype(int).tolist() == [nanoseconds(date) + int(fraction) for date in DATES for fraction in digits]
    assert np.isnat(read_times([pa.array([date.isoformat() for date in BEYOND])], "%Y-%m-%d %H:%M:%S")[0]).all()


@pytest.mark.parametrize("form", ["s", "ms", "us", "ns"])
def test_digits_of_numbers_since_1970_are_exact(form):
    counts = [nanoseconds(date) // EPOCHS[form][0] for date in DATES]
    expected = [nanoseconds(date) for date in DATES]
    for cells in (pa.array(counts), pa.array(list(map(str, counts)))):
        assert read_times([cells], form)[0].astype(int).tolist() == expected
        with_gap = pa.concat_arrays([cells, pa.nulls(1, cells.type)])
        assert read_times([with_gap], form)[0][:-1].astype(int).tolist() == expected
        assert np.isnat(read_times([with_gap], form)[0][-1])
    beyond = [count for date in BEYOND if abs(count := nanoseconds(date) // EPOCHS[form][0]) < 2**63]
    for cells in (
        pa.array(beyond),
        pa.array([1.001 * count for count in beyond]),
        pa.array([*map(str, beyond), "9" * 30]),
    ):
        assert np.isnat(read_times([cells], form)[0]).all()
