import random

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.cli.publishing.publisher import backoff_ms, percentile


@given(st.integers(1, 60), st.integers())
def test_a_back_off_doubles_within_its_bounds(attempt, seed):
    full = min(50 * 2 ** (attempt - 1), 5_000)
    assert full / 2 <= backoff_ms(attempt, random.Random(seed)) <= full


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from([1, 50, 99, 99.9, 100]))
def test_a_percentile_is_a_value_with_that_share_at_or_below_it(values, percent):
    ascending = sorted(values)
    value = percentile(ascending, percent)
    at_or_below = sum(each <= value for each in ascending)
    below = sum(each < value for each in ascending)
    assert at_or_below >= len(values) * percent / 100
    assert below < len(values) * percent / 100 + 1e-9
