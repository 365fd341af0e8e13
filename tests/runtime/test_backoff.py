import random

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.runtime.backoff import Backoff, backoff_s


@given(failed=st.integers(0, 10**6), jitter=st.floats(0, 1, exclude_max=True))
def test_a_wait_doubles_with_each_failed_try_up_to_its_maximum(failed: int, jitter: float) -> None:
    ceiling_s = min(2.0, 0.05 * 2 ** min(failed, 20))
    assert ceiling_s / 2 <= backoff_s(failed, jitter) <= ceiling_s


def test_a_try_that_worked_makes_the_next_wait_a_short_one_again() -> None:
    backoff = Backoff(random.Random(1), first_s=1.0, wait_max_s=100.0)
    waits = [backoff.next_s() for _ in range(8)]
    backoff.reset()
    assert backoff.next_s() <= 1.0 < waits[-1]
