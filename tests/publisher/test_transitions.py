"""Whoever listens is told of each transition once, for messages that come to it together."""

import pytest
import trio

from hermes_actors.errors import HermesError, Refused
from hermes_actors.log.base import Stored
from hermes_actors.publisher.demands import Head
from hermes_actors.publisher.pending import Transitions
from tests.publisher.keeper import Keeper

STORED = [("sent", 1), ("answered", 1), ("settled", 1)]


class Heard(Transitions):
    """Keeps what it hears: the transition, the pendings, and what else was said."""

    def __init__(self) -> None:
        self.all: list[tuple] = []

    def admitted(self, pendings) -> None:
        self.all.append(("admitted", list(pendings)))

    def sent(self, pendings, dc, via, places=None) -> None:
        self.all.append(("sent", list(pendings), dc, via))

    def answered(self, pendings, dc, partition, outcomes, took_s, places=None) -> None:
        assert took_s >= 0
        self.all.append(("answered", list(pendings), dc, list(outcomes)))

    def kept(self, pending, messages) -> None:
        assert list(messages) == list(pending.messages)
        self.all.append(("kept", [pending]))

    def settled(self, pendings) -> None:
        assert all(pending.is_answered for pending in pendings)
        self.all.append(("settled", list(pendings)))


@pytest.fixture
async def listening(open_world, autojump_clock):
    """A frontend with a spool that is asked 15 ms before the limit, and what was heard of it."""
    keeper = Keeper()
    async with open_world(parts={"spool": keeper}) as world:
        heard = Heard()
        world.keeper, world.heard = keeper, heard.all
        world.hear(heard)
        await world.add_topic("shop.orders")
        await trio.sleep(0.01)
        yield world


def kinds(world) -> list[tuple[str, int]]:
    return [(each[0], len(each[1])) for each in world.heard]


async def test_a_message_is_admitted_sent_and_settled(listening, autojump_clock) -> None:
    pending = listening.admit(body=b"1")
    await trio.sleep(0.01)
    assert listening.heard[1] == ("sent", [pending], "dc1", "local")
    assert listening.heard[2] == ("answered", [pending], "dc1", [Stored(0)])
    assert kinds(listening) == [("admitted", 1), *STORED]
    assert all(each[1] == [pending] for each in listening.heard)


async def test_messages_that_go_together_are_told_together(listening, autojump_clock) -> None:
    for number in range(5):
        listening.admit(body=b"%d" % number)
    await trio.sleep(0.01)
    assert kinds(listening) == [("admitted", 1)] * 5 + [(told, 5) for told, _ in STORED]


async def test_what_is_kept_is_told_so_and_settled_once(listening, autojump_clock) -> None:
    listening.log.faults.unavailable_rate = 1.0
    listening.admit()
    await trio.sleep(0.01)
    kept = [("admitted", 1), ("sent", 1), ("answered", 1), ("kept", 1)]
    assert kinds(listening) == kept
    listening.keeper.written()
    assert kinds(listening) == [*kept, ("settled", 1)]
    assert 'status_code="202"} 1.0' in listening.text()


async def test_what_is_refused_is_settled_and_was_never_sent(listening, autojump_clock) -> None:
    pending = listening.frontend.gateway.admit("shop.orders", 5, None, Head([], {}), lambda _: None)
    listening.frontend.gateway.hand_over(pending, b"{}")
    assert kinds(listening) == [("admitted", 1), ("settled", 1)]
    assert isinstance(pending.outcome, Refused)
    assert 'status_code="400"} 1.0' in listening.text()


class Later:
    """A topic's check of messages that ends when the test says so."""

    def __init__(self, world) -> None:
        self.done = None
        world.frontend.routes.by_name["shop.orders"].validate = self

    def __call__(self, message, _head, done, _is_wanted) -> None:
        self.message = message
        self.done = done


async def test_a_check_may_end_later_and_the_message_goes_on_then(
    listening, autojump_clock
) -> None:
    later = Later(listening)
    pending = listening.admit(body=b"checked")
    await trio.sleep(0.02)
    assert listening.stored == []
    later.done(later.message)
    await trio.sleep(0.01)
    assert [record.value for record in listening.stored] == [b"checked"]
    assert later.message.id == pending.id


async def test_a_check_may_refuse_later(listening, autojump_clock) -> None:
    later = Later(listening)
    pending = listening.admit()
    await trio.sleep(0.02)
    later.done(Refused("no"))
    assert isinstance(pending.outcome, Refused)
    assert listening.stored == []


async def test_a_check_that_ends_after_the_limit_is_for_nobody(listening, autojump_clock) -> None:
    later = Later(listening)
    pending = listening.admit()
    await trio.sleep(0.1)
    assert isinstance(pending.outcome, HermesError)
    assert pending.outcome.status == 503
    assert listening.keeper.taken == []
    later.done(later.message)
    await trio.sleep(0.01)
    assert listening.stored == []
    assert listening.frontend.drain.in_flight == 0
