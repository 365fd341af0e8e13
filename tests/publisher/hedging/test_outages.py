"""Whatever happens to the logs: each message has one fate, and what is acknowledged is stored."""

import random
from types import SimpleNamespace

import pytest
import trio
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from hermes_actors.config import FrontendConfig
from hermes_actors.log.base import RefusedRecord, Stored, UnavailableRecord
from hermes_actors.model.topic import Ack, Chaos
from hermes_actors.publisher.hedging.hedge import Hedge

FAULTS = ["silent", "cut", "slow", "very slow", "flaky", "lost", "well"]


def strike(log, fault: str) -> None:
    log.faults.heal()
    if fault == "silent":
        log.faults.silent = True
    elif fault == "cut":
        log.faults.cut()
    elif fault == "slow":
        log.faults.delay_s = (0.05, 0.2)
    elif fault == "very slow":
        log.faults.delay_s = (0.2, 0.9)
    elif fault == "flaky":
        log.faults.unavailable_rate = 0.3
        log.faults.partial_rate = 0.5
    elif fault == "lost":
        log.faults.acknowledgement_lost_rate = 0.3


async def publish(world, seconds: float, rate: float, rng: random.Random, partitions: int) -> None:
    """Keyed batches, one in flight for each partition, as the producer does it."""
    queues: list[list] = [[] for _ in range(partitions)]
    busy = [False] * partitions

    async def drive(partition: int) -> None:
        while queues[partition]:
            batch = [each for each in queues[partition] if not each.is_done]
            queues[partition] = []
            if batch:
                await world.hedge.append(batch, partition)
        busy[partition] = False

    async def expire() -> None:
        """The producer's timer."""
        at = 0
        while True:
            await trio.sleep(0.01)
            while at < len(world.messages) and (
                trio.current_time() >= world.messages[at].started_s + 0.5
            ):
                world.messages[at].is_done = True
                at += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(expire)
        end_s = trio.current_time() + seconds
        while trio.current_time() < end_s:
            partition = rng.randrange(partitions)
            queues[partition] += world.make(1, b"key-%d" % partition)
            if not busy[partition]:
                busy[partition] = True
                world.nursery.start_soon(drive, partition)
            await trio.sleep(rng.expovariate(rate))
        await trio.sleep(1)
        nursery.cancel_scope.cancel()


# What fails is one seed already: making it smaller would take minutes.
FEW = settings(max_examples=12, deadline=None, phases=(Phase.explicit, Phase.generate))


@pytest.mark.slow
@FEW
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.sampled_from(FAULTS), st.floats(0.1, 2.0)),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 10**6),
)
def test_each_message_has_one_fate_and_what_is_acknowledged_is_where_it_is_said_to_be(
    open_world, history, seed
) -> None:
    async def main() -> None:
        async with open_world(dcs=3, partitions={"dc1": 3, "dc2": 2, "dc3": 5}) as world:
            rng = random.Random(seed)

            async def nemesis() -> None:
                for dc, fault, pause_s in history:
                    strike(world.logs[f"dc{dc}"], fault)
                    await trio.sleep(pause_s)

            world.nursery.start_soon(nemesis)
            await publish(world, sum(pause_s for *_, pause_s in history), 60, rng, 3)
            for log in world.logs.values():
                log.faults.heal()
            await trio.sleep(6)
            kept = {dc: {number for number, *_ in each} for dc, each in world.stored.items()}
            known = every = 0
            for message in world.messages:
                places = [dc for dc in kept if message.number in kept[dc]]
                (told,) = message.told
                again = max(len(places) - 1, 0)
                every += again
                if type(told) is Stored:
                    known += again
                    assert message.dc in ("", *places)
                if isinstance(told, UnavailableRecord | RefusedRecord):
                    assert places == [], "certainly not stored"
            for each in world.stored.values():
                assert len({number for number, *_ in each}) == len(each), "once in each log"
            counted = world.counted("topic_duplicated_message_total")
            assert counted <= every
            assert known <= counted + world.counted("fallback_unknown_copies_total")

    trio.run(main, clock=MockClock(autojump_threshold=0))


async def test_what_one_topic_learnt_spares_another_the_wait(open_world, autojump_clock) -> None:
    async with open_world() as world:
        await world.warm()
        told = []
        quiet = Hedge(
            world.fallback,
            SimpleNamespace(
                name="shop.quiet",
                log_topic="shop.orders",
                topic=SimpleNamespace(ack=Ack.LEADER, chaos=Chaos()),
                answered=lambda *_told: None,
            ),
            FrontendConfig(max_publish_request_duration_ms=500),
            records=world.records,
            settle=lambda dc, items, _outcomes, _took_s: told.append((dc, len(items))),
        )
        world.nursery.start_soon(quiet.follow)
        await trio.sleep(0.01)
        world.log.faults.silent = True
        world.begin(30)
        await world.send(30, 1)
        started_s = trio.current_time()
        await quiet.append(world.make(), 2)
        assert told == [("dc2", 1)]
        assert trio.current_time() - started_s < 0.001
