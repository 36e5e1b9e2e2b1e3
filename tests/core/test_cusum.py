"""Page's cumulative sum by its definition: the largest sum of the latest observations, and how many these are."""

from hypothesis import given
from hypothesis import strategies as st

from streamkpca.stream.summary import Cusum


@given(st.lists(st.integers(-5, 9), max_size=60))
def test_it_is_the_largest_sum_of_the_latest_observations(excesses):
    cusum = Cusum()
    for excess in excesses:
        cusum = cusum.add(excess)
    sums = [sum(excesses[start:]) for start in range(len(excesses) + 1)]
    assert cusum.total == max(sums)
    # The earliest start that no row before would improve: the row after the last zero.
    assert cusum.n == (len(excesses) - max(i for i, value in enumerate(sums) if value == max(sums)) if max(sums) else 0)
