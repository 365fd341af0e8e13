"""How a subscription fares on a node, with what its consumer says of its rate."""

import pytest

from hermes_actors.status.fold import StatusFold
from hermes_actors.status.record import SubscriptionStatus
from hermes_actors.status.sums import places

NAME = "shop.orders$billing"


def told(record, **fields):
    fold = StatusFold()
    fold.report("dc1", "", 0, 0.0)
    fold.take("dc1", record(subscriptions=[SubscriptionStatus(NAME, **fields)]), 0, 1.0)
    (place,) = places(fold, NAME, 1.0)
    return place.state, place.reason


@pytest.mark.parametrize("level", ["SLOW", "HEARTBEAT"])
def test_single_messages_to_an_endpoint_are_failing_and_say_how_long_others_wait(record, level):
    fields = {"level": level, "held_back": "one message a second for 9 s", "oldest_age_ms": 12_300}
    assert told(record, **fields) == (
        "FAILING",
        "one message a second for 9 s; the oldest message that waits is 12 s old",
    )
    assert told(record, **{**fields, "oldest_age_ms": 0})[1] == "one message a second for 9 s"


def test_what_holds_it_back_is_told_beside_what_it_does(record):
    state, reason = told(record, level="ADAPTING", inflight=3, held_back="the rate is down to 5/s")
    assert state == "DELIVERING"
    assert reason == "0 wait for their time, 3 are in flight; the rate is down to 5/s"


def test_what_stops_it_comes_first(record):
    assert told(record, why="stopping", level="SLOW", held_back="x") == ("STOPPED", "stopping")


def test_a_record_of_an_older_version_has_no_level(record):
    assert told(record, lag=0) == ("IDLE", "there is nothing to deliver")
