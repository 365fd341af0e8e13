"""A bundle that no log takes in time comes apart, and each of its messages has its own fate."""

import pytest
import trio

from hermes_actors.errors import Unavailable
from hermes_actors.log.base import Outcome, Stored, UnavailableRecord
from hermes_actors.model.message import Envelope
from hermes_actors.model.record import Record
from hermes_actors.model.run import RecordRun
from hermes_actors.publisher.bundle import Bundle, joined
from hermes_actors.publisher.publication import Buffered, Extras, Publication, Route

LIMIT_MS = 500


class Keeper:
    """A buffer with room for some messages, whose disk is done when the test says so."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.taken: list[Publication] = []
        self.bodies: list[bytes] = []
        self.outcomes: list[tuple[str, Outcome]] = []
        self.keys: set[bytes | None] = set()

    def take(self, publication: Publication) -> bool:
        if not self.room:
            return False
        self.room -= 1
        self.taken.append(publication)
        self.bodies.append(publication.body)
        return True

    def holds(self, route: Route, key: bytes) -> bool:
        return key in self.keys

    async def catch_up(self, route, *_args) -> None:
        await trio.lowlevel.checkpoint()

    def concluded(self, publication: Publication, outcome: Outcome) -> None:
        self.outcomes.append((publication.id, outcome))

    def written(self) -> None:
        for publication in self.taken:
            publication.settle(Buffered())


@pytest.fixture
async def keeping(open_world, autojump_clock):
    """A frontend whose topics have a buffer that begins 15 ms before the limit."""
    keeper = Keeper(1_000)
    async with open_world(parts={"buffer_of": lambda _topic: keeper, "reserve_ms": 15}) as world:
        world.keeper = keeper
        await world.add_topic("shop.orders", partitions=2)
        yield world


def bundle(world, bodies, keys=None, extras=None) -> tuple[Bundle, list[Bundle]]:
    """A bundle that is under way, and where it is put when it has ended."""
    ended: list[Bundle] = []
    route = world.frontend.routes.by_name["shop.orders"]
    ids = [b"12345678-9abc-8def-8123-%012d" % number for number in range(len(bodies))]
    made = Bundle(ids, bodies, route, trio.current_time(), keys, ended.append, None, extras)
    route.tally.in_flight += 1
    route.batch_lanes.first.add(made)
    return made, ended


def started(world, *args) -> tuple[Bundle, list[Bundle]]:
    made, ended = bundle(world, *args)
    world.frontend.gateway.hand_over_bundle(None, made)
    return made, ended


async def test_silence_is_kept_message_by_message_before_the_limit(keeping, autojump_clock) -> None:
    keeping.log.faults.silent = True
    made, ended = started(keeping, [b"1", b"2", b"3"], b"key")
    await trio.sleep((LIMIT_MS - 10) / 1_000)
    assert keeping.keeper.bodies == [b"1", b"2", b"3"]
    assert [each.key for each in keeping.keeper.taken] == [b"key"] * 3
    assert [each.id.encode() for each in keeping.keeper.taken] == list(made.ids)
    assert not ended
    keeping.keeper.written()
    assert ended == [made]
    assert made.outcomes == [Buffered()] * 3
    assert keeping.frontend.tally.in_flight == 0


async def test_what_the_buffer_has_no_room_for_is_answered_and_the_rest_is_kept(
    keeping, autojump_clock
) -> None:
    keeping.log.faults.silent = True
    keeping.keeper.room = 2
    made, ended = started(keeping, [b"1", b"2", b"3"])
    await trio.sleep((LIMIT_MS - 10) / 1_000)
    keeping.keeper.written()
    assert ended == [made]
    assert list(made.outcomes[:2]) == [Buffered()] * 2
    assert isinstance(made.outcomes[2], Unavailable)
    assert "may have been stored" in str(made.outcomes[2])
    assert keeping.frontend.tally.in_flight == 0


async def test_a_buffer_that_takes_nothing_leaves_the_bundle_as_it_is(
    keeping, autojump_clock
) -> None:
    keeping.log.faults.delay_s = (0.490, 0.490)
    keeping.keeper.room = 0
    made, ended = started(keeping, [b"1", b"2"])
    await trio.sleep(0.495)
    assert ended == [made]
    assert all(isinstance(outcome, Stored) for outcome in made.outcomes)
    assert keeping.frontend.tally.in_flight == 0


async def test_messages_that_the_log_does_not_take_are_kept_and_others_answered(
    keeping, autojump_clock
) -> None:
    keeping.log.faults.partial_rate = 1.0
    made, ended = started(keeping, [b"%d" % number for number in range(6)])
    await trio.sleep(0.01)
    stored = len(keeping.stored)
    assert 0 < stored < 6
    assert keeping.keeper.bodies == [b"%d" % number for number in range(stored, 6)]
    assert not ended
    keeping.keeper.written()
    assert ended == [made]
    kinds = [type(outcome) for outcome in made.outcomes]
    assert kinds == [Stored] * stored + [Buffered] * (6 - stored)
    assert all(type(outcome) is UnavailableRecord for _, outcome in keeping.keeper.outcomes)
    assert keeping.frontend.tally.in_flight == 0


async def test_a_log_that_acknowledges_late_what_is_kept_settles_it_as_stored(
    keeping, autojump_clock
) -> None:
    keeping.log.faults.delay_s = (0.495, 0.495)
    made, ended = started(keeping, [b"1", b"2"])
    await trio.sleep(0.490)
    assert keeping.keeper.bodies == [b"1", b"2"]
    await trio.sleep(0.010)
    assert ended == [made]
    assert [type(outcome) for outcome in made.outcomes] == [Stored, Stored]
    assert [type(outcome) for _, outcome in keeping.keeper.outcomes] == [Stored, Stored]
    keeping.keeper.written()
    assert len(ended) == 1


async def test_a_slow_disk_has_longer_than_a_slow_log_but_not_for_ever(
    keeping, autojump_clock
) -> None:
    keeping.log.faults.silent = True
    made, ended = started(keeping, [b"1", b"2"])
    await trio.sleep(1.4)
    assert not ended
    await trio.sleep(0.2)
    assert ended == [made]
    assert all("may have been stored" in str(outcome) for outcome in made.outcomes)
    assert keeping.frontend.tally.in_flight == 0


async def test_a_bundle_of_a_key_that_is_kept_joins_what_is_kept(keeping, autojump_clock) -> None:
    keeping.keeper.keys.add(b"b")
    keys = [b"a", b"b", b"a"]
    made, ended = bundle(keeping, [b"1", b"2", b"3"], keys)
    assert made.is_behind(keeping.keeper)
    other, _ = bundle(keeping, [b"1"], b"a")
    assert not other.is_behind(keeping.keeper)
    made.join_kept()
    keeping.keeper.written()
    assert ended == [made]
    assert made.outcomes == [Buffered()] * 3
    other.settle(Stored(1))


async def test_an_answered_bundle_is_not_answered_again(world, autojump_clock) -> None:
    made, ended = bundle(world, [b"1", b"2"])
    assert made.settle(Stored(4))
    assert not made.settle(Stored(5))
    assert made.conclude([Stored(1), Stored(2)]) == 0
    assert made.outcomes == [Stored(4), Stored(4)]
    assert ended == [made]


async def test_records_are_those_of_the_messages_one_by_one(world, autojump_clock) -> None:
    keys = [b"a", None]
    extras = [Extras(propagated=(("X-Trace", "1"),)), None]
    for own in (None, extras):
        for envelope in Envelope:
            made, _ = bundle(world, [b"1", b"2"], keys, own)
            records = made.records(1_000.0, "dc1", envelope)
            assert [record.key for record in records] == keys
            ids = [dict(record.headers)["id"] for record in records]
            assert ids == list(made.ids)
            assert isinstance(records, RecordRun) == (own is None and envelope is Envelope.NATIVE)
            assert ("h-X-Trace", b"1") in records[0].headers or own is None
            made.settle(Stored(0))


def test_runs_of_the_same_headers_are_joined_to_one_run() -> None:
    def run(first, keys, headers=(("dc", b"dc1"),)):
        ids = [b"12345678-9abc-8def-8123-%012d" % (first + at) for at in range(2)]
        return RecordRun([b"%d" % first, b"x"], ids, headers, 7, keys)

    for keys in ((None, None), (b"k", b"k"), (b"k", None), ([b"a", None], b"b")):
        parts = [run(number, each) for number, each in enumerate(keys)]
        whole = joined(parts)
        assert isinstance(whole, RecordRun)
        assert list(whole) == [record for part in parts for record in part]
    single = [Record(None, b"v", (), 1)]
    assert list(joined([run(1, None), single])) == [*run(1, None), *single]
    other = run(3, None, ())
    assert list(joined([run(1, None), other])) == [*run(1, None), *other]
