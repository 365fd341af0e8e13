"""Messages of a batch that no log takes in time are kept together, or answered together."""

import pytest
import trio

from hermes_actors.log.base import Stored
from hermes_actors.model.message import Envelope, Message
from hermes_actors.model.messages import MessageRun, joined, records_of
from hermes_actors.model.record import Record
from hermes_actors.model.run import RecordRun
from hermes_actors.publisher.answers import Buffered
from hermes_actors.publisher.pending import Pending
from tests.publisher.keeper import Keeper

LIMIT_MS = 500


@pytest.fixture
async def keeping(open_world, autojump_clock):
    """A frontend whose topics have a spool that is asked 15 ms before the limit."""
    keeper = Keeper(1_000)
    async with open_world(parts={"spool": keeper}) as world:
        world.keeper = keeper
        await world.add_topic("shop.orders", partitions=2)
        yield world


def ids_of(count: int, first: int = 0) -> list[bytes]:
    return [b"12345678-9abc-8def-8123-%012d" % (first + number) for number in range(count)]


def run_of(bodies, keys=None) -> MessageRun:
    return MessageRun(ids_of(len(bodies)), bodies, keys, Message("", b"", 7, dc="dc1"))


def started(world, bodies, keys=None) -> tuple[Pending, list[Pending]]:
    """A batch's messages on their way, and where they are put when they have ended."""
    ended: list[Pending] = []
    route = world.frontend.routes.by_name["shop.orders"]
    messages = run_of(bodies, keys)
    key = messages[0].key
    now_s = trio.current_time()
    size = sum(map(len, bodies))
    made = Pending(
        messages[0].id, route, now_s, key, size, route.batch_limits, ended.append, count=len(bodies)
    )
    route.drain.in_flight += 1
    world.frontend.deadlines.add(made)
    world.frontend.gateway.hand_over_batch(None, made, messages)
    return made, ended


def outcomes_of(made: Pending) -> list:
    return list(made.outcomes or [made.outcome] * made.count)


async def test_silence_is_kept_before_the_limit_with_one_offer(keeping, autojump_clock) -> None:
    keeping.log.faults.silent = True
    made, ended = started(keeping, [b"1", b"2", b"3"], b"key")
    await trio.sleep((LIMIT_MS - 10) / 1_000)
    assert keeping.keeper.bodies == [b"1", b"2", b"3"]
    assert {each.key for each in keeping.keeper.taken} == {b"key"}
    assert keeping.keeper.ids == [each.decode() for each in ids_of(3)]
    assert {each.via for each in keeping.keeper.taken} == {"spool"}
    assert not ended
    keeping.keeper.written()
    assert ended == [made]
    assert outcomes_of(made) == [Buffered()] * 3
    assert keeping.frontend.drain.in_flight == 0


async def test_what_the_spool_has_no_room_for_is_not_kept_in_part(keeping, autojump_clock) -> None:
    keeping.log.faults.delay_s = (0.490, 0.490)
    keeping.keeper.room = 2
    made, ended = started(keeping, [b"1", b"2", b"3"])
    await trio.sleep(0.495)
    assert keeping.keeper.taken == []
    assert ended == [made]
    assert all(isinstance(outcome, Stored) for outcome in outcomes_of(made))
    assert keeping.frontend.drain.in_flight == 0


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
    kinds = [type(outcome) for outcome in outcomes_of(made)]
    assert kinds == [Stored] * stored + [Buffered] * (6 - stored)
    assert keeping.keeper.concluded_as == []
    assert keeping.frontend.drain.in_flight == 0


async def test_messages_that_the_log_does_not_take_and_the_spool_neither_are_refused_by_name(
    keeping, autojump_clock
) -> None:
    keeping.log.faults.partial_rate = 1.0
    keeping.keeper.room = 0
    made, ended = started(keeping, [b"%d" % number for number in range(6)])
    await trio.sleep(0.01)
    stored = len(keeping.stored)
    assert ended == [made]
    kinds = [type(outcome) for outcome in outcomes_of(made)]
    assert kinds[:stored] == [Stored] * stored
    assert Stored not in kinds[stored:]


async def test_a_log_that_acknowledges_late_what_is_kept_settles_it_as_stored(
    keeping, autojump_clock
) -> None:
    keeping.log.faults.delay_s = (0.495, 0.495)
    made, ended = started(keeping, [b"1", b"2"])
    await trio.sleep(0.490)
    assert keeping.keeper.bodies == [b"1", b"2"]
    await trio.sleep(0.010)
    assert ended == [made]
    assert [type(outcome) for outcome in outcomes_of(made)] == [Stored, Stored]
    assert keeping.keeper.concluded_as == [[True, True]]
    keeping.keeper.written()
    assert len(ended) == 1


async def test_messages_of_a_key_that_is_kept_join_what_is_kept(keeping, autojump_clock) -> None:
    keeping.keeper.keys.add(b"b")
    made, ended = started(keeping, [b"1", b"2", b"3"], [b"a", b"b", b"a"])
    await trio.sleep(0.01)
    assert keeping.stored == []
    keeping.keeper.written()
    assert ended == [made]
    assert outcomes_of(made) == [Buffered()] * 3


def test_records_of_a_run_are_those_of_its_messages_one_by_one() -> None:
    keys = [b"a", None]
    run = run_of([b"1", b"2"], keys)
    for envelope in Envelope:
        records = records_of(run, envelope, "hedge")
        assert list(records) == list(records_of(list(run), envelope, "hedge"))
        assert [record.key for record in records] == keys
        assert isinstance(records, RecordRun) == (envelope is Envelope.NATIVE)
        assert [dict(record.headers)["id"] for record in records] == ids_of(2)
    own = [Message("i", b"1", 7, b"a", (("X-Trace", "1"),), "dc1")]
    assert ("h-X-Trace", b"1") in records_of(own)[0].headers


def test_runs_of_the_same_headers_are_joined_to_one_run() -> None:
    def run(first, keys, headers=(("dc", b"dc1"),)):
        return RecordRun([b"%d" % first, b"x"], ids_of(2, first), headers, 7, keys)

    for keys in ((None, None), (b"k", b"k"), (b"k", None), ([b"a", None], b"b")):
        parts = [run(number, each) for number, each in enumerate(keys)]
        whole = joined(parts)
        assert isinstance(whole, RecordRun)
        assert list(whole) == [record for part in parts for record in part]
    single = [Record(None, b"v", (), 1)]
    assert list(joined([run(1, None), single])) == [*run(1, None), *single]
    other = run(3, None, ())
    assert list(joined([run(1, None), other])) == [*run(1, None), *other]
