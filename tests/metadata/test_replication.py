"""Replicators between memory logs: convergence through outages, restarts and lost logs."""

import random
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio

from hermes_actors.metadata.bodies import readiness_body
from hermes_actors.metadata.commands import Accepted, Copy, delete, encode, put
from hermes_actors.metadata.keys import readiness_key
from hermes_actors.metadata.replication import Replicator
from hermes_actors.model.topic import Ack
from tests.seeds import seeds


@pytest.fixture
def open_sites(open_site, clock):
    @asynccontextmanager
    async def open_them(*dcs):
        async with AsyncExitStack() as stack:
            sites = [await stack.enter_async_context(open_site(dc)) for dc in dcs]
            for own in sites:
                own.replicators = {}
                for source in sites:
                    if source is not own:
                        start_replicator(own, source, clock)
            yield sites

    return open_them


def start_replicator(own, source, clock):
    def make():
        own.replicators[source.dc] = Replicator(
            source.log, own.metadata, clock=clock, rng=random.Random(1)
        )
        return own.replicators[source.dc]

    own.supervisor.start_task(f"replicator-{source.dc}", lambda stop: make().run(stop))


def shared_bytes(*sites):
    (only,) = {site.metadata.state.canonical_bytes() for site in sites}
    return only


async def test_three_datacentres_converge_and_copies_do_not_go_round(autojump_clock, open_sites):
    async with open_sites("dc1", "dc2", "dc3") as sites:
        accepted = dict.fromkeys(("dc1", "dc2", "dc3"), 0)
        for number in range(30):
            site = sites[number % 3]
            changes = [put(f"note/{number % 7}", str(number).encode())]
            if number % 4 == 0:
                changes.append(delete(f"note/{number % 7}"))
            for change in changes:
                outcome = await site.metadata.change(change)
                accepted[site.dc] += isinstance(outcome, Accepted)
        await trio.sleep(5)
        assert shared_bytes(*sites) != b"\x90"
        for own in sites:
            for source, replicator in own.replicators.items():
                assert replicator.copied == accepted[source]
        ends = [site.metadata.state.position for site in sites]
        await trio.sleep(300)
        assert [site.metadata.state.position for site in sites] == ends


async def test_changes_go_on_while_a_datacentre_is_down_and_reach_it_later(
    autojump_clock, open_sites
):
    async with open_sites("dc1", "dc2") as (one, two):
        await one.metadata.change(put("note/x", b"1"))
        await trio.sleep(1)
        two.log.faults.cut()
        assert isinstance(await one.metadata.change(delete("note/x")), Accepted)
        await trio.sleep(60)
        assert two.metadata.register("note/x").body == b"1"
        assert two.replicators["dc1"].trouble
        two.log.faults.heal()
        await trio.sleep(5)
        assert not two.metadata.register("note/x").is_alive
        assert not two.replicators["dc1"].trouble
        shared_bytes(one, two)


async def test_a_restarted_replicator_goes_on_where_the_fold_says(autojump_clock, open_sites):
    async with open_sites("dc1", "dc2") as (one, two):
        for number in range(20):
            await one.metadata.change(put(f"note/{number}", b""))
        await trio.sleep(1)
        end = two.metadata.state.position
        two.supervisor.crash("replicator-dc1")
        await trio.sleep(5)
        assert two.metadata.state.position == end
        await one.metadata.change(put("note/more", b""))
        await trio.sleep(1)
        assert two.metadata.state.position == end + 1
        shared_bytes(one, two)


async def test_a_lost_log_gets_everything_back_its_own_changes_too(autojump_clock, open_sites):
    async with open_sites("dc1", "dc2") as (one, two):
        await one.metadata.change(put("note/one", b"1"))
        await two.metadata.change(put("note/two", b"2"))
        await two.metadata.change(put("note/gone", b"2"))
        await two.metadata.change(delete("note/gone"))
        await trio.sleep(2)
        before = shared_bytes(one, two)
        await one.log.topics.delete(one.metadata.topic)
        await trio.sleep(150)
        assert shared_bytes(one, two) == before
        assert one.replicators["dc2"].resent > 0
        # The log made anew is copied from its start.
        await one.metadata.change(put("note/after", b"3"))
        await trio.sleep(2)
        assert two.metadata.register("note/after").body == b"3"


async def test_a_comparison_sends_only_what_is_missing(autojump_clock, open_sites, clock):
    async with open_sites("dc1", "dc2") as (one, two):
        for number in range(10):
            await one.metadata.change(put(f"note/{number}", b""))
        await trio.sleep(70)
        assert two.replicators["dc1"].resent == 0
        # What did not originate in dc1 is not copied from there: each copies its own.
        copy = Copy("log3:0", "note/x", b"", 0, 5, "dc3", "dc3", "log3", 0)
        await one.log.append(one.metadata.topic, 0, [encode(copy, clock.now_ms())], Ack.ALL)
        await trio.sleep(15)
        assert two.metadata.register("note/x") is None
        await trio.sleep(60)
        assert two.replicators["dc1"].resent == 1
        shared_bytes(one, two)


def lose_last_record(site):
    """A leader that had not copied the last record took over."""
    partition = site.log.topics.known(site.metadata.topic).partitions[0]
    del partition.records[-1]
    partition.replicated = partition.end
    site.log.topics.known(site.metadata.topic).readers.unpark_all()


async def test_a_copy_that_was_lost_with_its_broker_is_sent_again_in_seconds(
    autojump_clock, open_sites
):
    async with open_sites("dc1", "dc2") as (one, two):
        await one.metadata.change(put("note/1", b""))
        await one.metadata.change(put("note/2", b""))
        await trio.sleep(1)
        lose_last_record(two)
        await trio.sleep(10)
        assert two.metadata.refolds == 1
        assert two.metadata.register("note/2").is_alive
        shared_bytes(one, two)


async def test_changes_under_offsets_that_were_given_again_are_copied_in_seconds(
    autojump_clock, open_sites
):
    async with open_sites("dc1", "dc2") as (one, two):
        await one.metadata.change(put("note/1", b""))
        await one.metadata.change(put("note/lost", b""))
        await trio.sleep(1)
        lose_last_record(one)
        await trio.sleep(0.1)
        await one.metadata.change(put("note/again", b""))
        await trio.sleep(15)
        assert two.metadata.register("note/again").is_alive
        # dc2 had a copy of what dc1 lost.
        assert one.metadata.register("note/lost").is_alive
        shared_bytes(one, two)


async def test_a_source_that_lost_its_beginning_is_copied_from_what_it_still_holds(
    autojump_clock, open_sites
):
    async with open_sites("dc1", "dc2") as (one, two):
        await one.metadata.change(put("note/1", b""))
        await trio.sleep(1)
        partition = one.log.topics.known(one.metadata.topic).partitions[0]
        # As an operator's deletion of all records does it; both start anew.
        partition.start = partition.end
        partition.records.clear()
        for site in (one, two):
            site.supervisor.crash("registry")
        two.supervisor.crash("replicator-dc1")
        await trio.sleep(20)
        await one.metadata.change(put("note/2", b""))
        await trio.sleep(5)
        assert two.metadata.register("note/2").is_alive
        assert not two.replicators["dc1"].trouble


@pytest.mark.parametrize("seed", seeds(5))
async def test_faulty_logs_delay_convergence_and_do_not_prevent_it(
    autojump_clock, open_sites, seed
):
    rng = random.Random(seed)
    async with open_sites("dc1", "dc2") as sites:
        for site in sites:
            await site.metadata.wait_current()
            site.log.faults.unavailable_rate = 0.2
            site.log.faults.acknowledgement_lost_rate = 0.2
            site.log.faults.partial_rate = 0.2
            site.log.faults.delay_s = (0.0, 0.2)
        for number in range(40):
            change = put(f"note/{rng.randrange(5)}", str(number).encode())
            if rng.random() < 0.3:
                change = delete(change.key)
            await rng.choice(sites).metadata.change(change)
        for site in sites:
            site.log.faults.heal()
        await trio.sleep(130)
        shared_bytes(*sites)


async def test_a_mark_of_readiness_reaches_every_datacentre(autojump_clock, open_sites):
    async with open_sites("dc1", "dc2") as (one, two):
        for is_ready in (False, True):
            await two.metadata.change(put(readiness_key("dc1"), readiness_body(is_ready)))
            await trio.sleep(5)
            assert [site.metadata.catalog.is_ready("dc1") for site in (one, two)] == [is_ready] * 2
            assert one.metadata.catalog.is_ready("dc2")
