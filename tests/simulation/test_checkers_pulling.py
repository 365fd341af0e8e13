"""The checkers of pull subscriptions can fail."""

from dataclasses import replace

import pytest

from hermes_chaos.sim.checkers.pulling import HandOutsAreExclusive, StaleAcksAreRefused
from hermes_chaos.sim.history.pulling import Acknowledged, HandedOut, LetGo

OUT = HandedOut("dc1-n1#1", "g.t$s", (0, 7), 5, "5.0.7.life.1", "", until_s=10.0, at_s=9.0)
AGAIN = replace(OUT, ack_id="5.0.7.life.2", at_s=9.5)
KEYED = replace(OUT, key="k")
NEXT = replace(KEYED, place=(0, 8), ack_id="5.0.8.life.2", at_s=9.5)


@pytest.mark.parametrize(
    ("events", "is_broken"),
    [
        ([OUT, AGAIN], True),
        ([OUT, replace(AGAIN, at_s=10.0)], False),
        ([OUT, LetGo(OUT.ack_id), AGAIN], False),
        ([OUT, replace(AGAIN, ack_id="5.0.7.other.1")], False),
        ([KEYED, NEXT], True),
        ([KEYED, LetGo(KEYED.ack_id), NEXT], False),
        ([KEYED, replace(NEXT, key="other")], False),
    ],
)
def test_a_message_or_key_that_a_client_has_is_nobody_elses(events, is_broken):
    checker = HandOutsAreExclusive()
    for event in events:
        checker.watch(event)
    assert bool(checker.violations) is is_broken


@pytest.mark.parametrize(
    ("epoch", "is_taken", "is_broken"), [(5, True, True), (5, False, False), (9, True, False)]
)
def test_an_id_of_before_a_hand_over_must_be_refused(epoch, is_taken, is_broken):
    checker = StaleAcksAreRefused()
    for event in (OUT, replace(OUT, life="dc1-n2#1", epoch=9, ack_id="9.0.7.x.1")):
        checker.watch(event)
    checker.watch(Acknowledged("dc1", "g.t$s", 0, epoch, OUT.ack_id, is_taken))
    checker.watch(Acknowledged("dc2", "g.t$s", 0, 5, OUT.ack_id, True))
    assert bool(checker.violations) is is_broken
