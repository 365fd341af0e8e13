"""What the datacentres answered comes to one outcome for each message."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.log.base import Outcome, Stored, UnavailableRecord, UnknownRecord
from hermes_actors.publisher.hedging.flight import Attempts, Flight


def attempts_of(count: int) -> Attempts:
    pending = SimpleNamespace(count=count, is_done=False)
    return Attempts(pending, Flight([pending], 0, 0.0))


OUTCOMES = st.sampled_from([Stored(1), UnavailableRecord("away"), UnknownRecord("silent")])


@given(st.lists(st.tuples(OUTCOMES, OUTCOMES), min_size=1, max_size=5))
def test_what_any_datacentre_has_stored_is_stored_and_what_two_have_is_a_duplicate(pairs) -> None:
    attempts = attempts_of(len(pairs))
    assert attempts.verdict() == [UnavailableRecord("not sent")] * len(pairs)
    again = 0
    for dc in ("dc1", "dc2"):
        attempts.sent(dc)
        attempts.began(dc)
    for dc, found in zip(("dc1", "dc2"), zip(*pairs, strict=True), strict=True):
        kinds = {type(each) for each in attempts.verdict()}
        assert kinds <= {Stored, UnknownRecord}, "an append of it runs"
        again += attempts.learn(dc, found)
    both = [type(one) is Stored and type(other) is Stored for one, other in pairs]
    assert again == sum(both)
    assert attempts.is_stored == all(Stored(1) in pair for pair in pairs)
    for verdict, pair in zip(attempts.verdict(), pairs, strict=True):
        kinds = {type(each) for each in pair}
        expected: type[Outcome] = next(
            kind for kind in (Stored, UnknownRecord, UnavailableRecord) if kind in kinds
        )
        assert type(verdict) is expected
