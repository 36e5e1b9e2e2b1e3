"""What the doors to engines share: runs of partitions, and records as rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.adapters.runs import rows_of_records, runs_of


@given(st.integers(1, 200), st.integers(1, 40))
def test_runs_are_neighbours_of_similar_length(n_parts, n_streams):
    runs = runs_of(n_parts, n_streams)
    assert [number for run in runs for number in run] == list(range(n_parts))
    assert len(runs) == min(n_parts, n_streams)
    assert max(map(len, runs)) - min(map(len, runs)) <= 1


def test_records_become_rows():
    rows = rows_of_records([{"a": 1, "b": 2.0}, {"b": 4.0}])
    assert rows.columns == ["a", "b"]
    np.testing.assert_array_equal(rows.to_numpy(), [[1.0, 2.0], [np.nan, 4.0]])
    assert (len(rows), rows.shape) == (2, (2, 2))
    assert rows_of_records([{"b": 1.0}], ["a", "b"]).columns == ["a", "b"]
    np.testing.assert_array_equal(rows_of_records(iter([[1.0, 2.0], [[3.0, 4.0]]])), [[1, 2], [3, 4]])
    assert len(rows_of_records([])) == 0
    with pytest.raises(ValueError, match=r"expected the features a \(set by the first record\) but got b too; drop"):
        rows_of_records([{"a": 1.0}, {"a": 1.0, "b": 2.0}])
