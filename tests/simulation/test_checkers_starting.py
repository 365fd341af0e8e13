"""The checkers of subscriptions that are created during a run can fail."""

from dataclasses import replace

import pytest

from hermes_actors.model.topic import Ack
from hermes_chaos.sim.checkers.delivering import AcknowledgedAreDelivered
from hermes_chaos.sim.checkers.publishing import AcknowledgedAreStored
from hermes_chaos.sim.checkers.starting import NothingOfBeforeIsHanded
from hermes_chaos.sim.history.events import Delivery, Dropped, Event, Published, Stored
from hermes_chaos.sim.workload.subject import Audience, Subject

PLACE = ("dc1", "g.t", 0)
NAME = "g.t$s"
SUBJECT = Subject({"g.t": Ack.ALL}, [Audience(NAME, "g.t", "s", is_late=True)], dcs=("dc1", "dc2"))


def body(serial: int) -> bytes:
    return b'{"serial": %d}' % serial


def stored(serial: int) -> Stored:
    return Stored(PLACE, serial, f"id{serial}", body(serial), "g.t")


def delivery(serial: int) -> Delivery:
    return Delivery("dc1", NAME, f"id{serial}", body(serial), True)


@pytest.fixture
def newcomer() -> NothingOfBeforeIsHanded:
    """A checker to which the log has shown message 1 before the subscription was asked for."""
    checker = NothingOfBeforeIsHanded(SUBJECT, "dc1", lambda _place: 3)
    checker.watch(stored(1))
    checker.creating(NAME)
    return checker


def test_what_was_there_before_a_subscription_is_not_handed_to_it(
    newcomer: NothingOfBeforeIsHanded,
) -> None:
    newcomer.created(NAME, is_exact=True)
    for event in (stored(2), delivery(2), delivery(1)):
        newcomer.watch(event)
    assert len(newcomer.violations) == 1
    assert newcomer.examined == 2


@pytest.mark.parametrize(
    "cause",
    [replace(stored(1), offset=7), Dropped(PLACE, 1)],
    ids=["stored once more", "the log has lost its end"],
)
def test_what_was_there_before_is_handed_to_it_for_a_cause(
    newcomer: NothingOfBeforeIsHanded, cause: Event
) -> None:
    newcomer.created(NAME, is_exact=True)
    newcomer.watch(cause)
    newcomer.watch(delivery(1))
    assert newcomer.violations == []


def test_what_the_log_held_and_let_nobody_read_yet_may_be_handed_to_it() -> None:
    checker = NothingOfBeforeIsHanded(SUBJECT, "dc1", lambda _place: 2)
    for serial in (1, 2):
        checker.watch(stored(serial))
    checker.creating(NAME)
    checker.created(NAME, is_exact=True)
    checker.watch(delivery(2))
    assert checker.violations == []
    checker.watch(delivery(1))
    assert len(checker.violations) == 1


def test_one_that_starts_by_its_time_may_be_handed_what_is_older(
    newcomer: NothingOfBeforeIsHanded,
) -> None:
    newcomer.created(NAME, is_exact=False)
    newcomer.watch(delivery(1))
    assert newcomer.violations == []


def test_of_a_later_life_nobody_can_tell_what_the_one_before_had_under_way(
    newcomer: NothingOfBeforeIsHanded,
) -> None:
    newcomer.created(NAME, is_exact=True)
    newcomer.removing(NAME)
    newcomer.creating(NAME)
    newcomer.created(NAME, is_exact=True)
    newcomer.watch(delivery(1))
    assert newcomer.violations == []


def test_a_late_subscription_is_owed_what_comes_after_it_and_not_what_its_log_holds() -> None:
    checker = AcknowledgedAreDelivered(
        SUBJECT, AcknowledgedAreStored(SUBJECT, lambda _node, _message_id: False)
    )
    checker.watch(stored(1))
    checker.created(NAME)
    for serial in (1, 2):
        checker.watch(Published(serial, "g.t", body(serial), "dc1-n1#1", 201, f"id{serial}"))
    assert checker.pending() == {NAME: [2]}
