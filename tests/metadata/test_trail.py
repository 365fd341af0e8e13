"""The trail of changes: each once with its author, also across datacentres, and each loser told."""

import json
import random
from contextlib import AsyncExitStack

import pytest
import trio

from hermes_actors.metadata.audit import UNKNOWN, Author, changes_of
from hermes_actors.metadata.commands import Absent, Accepted, StampIs, delete, put
from hermes_actors.metadata.past import Past
from hermes_actors.metadata.replication import Replicator
from hermes_actors.metadata.state import Folded, Register
from hermes_actors.metadata.trail import OVERRULED, Trail, replaced_header
from hermes_actors.model.record import StoredRecord


@pytest.fixture
async def sites(open_site, autojump_clock):
    async with AsyncExitStack() as stack:
        sites = [await stack.enter_async_context(open_site(dc)) for dc in ("dc1", "dc2", "dc3")]
        for each in sites:
            await each.metadata.wait_own()
        yield sites


def connect(clock, *sites):
    for own in sites:
        for source in sites:
            if source is not own:

                def make(own=own, source=source):
                    return Replicator(source.log, own.metadata, clock=clock, rng=random.Random(1))

                run = lambda stop, make=make: make().run(stop)  # noqa: E731
                own.supervisor.start_task(f"replicator-{source.dc}", run)


async def add(site, author):
    """Add the author's name to the list that is register x, whatever others do meanwhile."""
    with changes_of(Author(author, reason=f"why {author}")):
        while True:
            held = site.metadata.register("note/x")
            is_there = held is not None and held.is_alive
            names = json.loads(held.body) if is_there else []
            as_read = StampIs("note/x", held.stamp) if is_there else Absent("note/x")
            body = json.dumps([*names, author]).encode()
            if isinstance(await site.metadata.change(put("note/x", body, as_read)), Accepted):
                return


def told(site, dc=None):
    lost = [each for each in site.metadata.trail.entries if each.action == OVERRULED]
    return [each.author.by for each in lost if each.dc == (dc or site.dc)]


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("seed", range(2))
async def test_parallel_changes_converge_and_each_loser_is_told_once(
    sites, clock, seed, is_cut, caplog
):
    one, two, _ = sites
    rng = random.Random(seed)
    for site in (one, two):
        site.log.faults.delay_s = (0.0, 0.1)
        site.log.faults.acknowledgement_lost_rate = 0.1
    if not is_cut:
        connect(clock, one, two)
    authors = [f"a{number}" for number in range(100)]

    at_once = {site: trio.Semaphore(2) for site in (one, two)}

    async def change(author, site):
        async with at_once[site]:
            await add(site, author)

    async with trio.open_nursery() as nursery:
        for author in authors:
            nursery.start_soon(change, author, rng.choice([one, two]))
    if is_cut:
        connect(clock, one, two)
    await trio.sleep(5)
    (body,) = {site.metadata.register("note/x").body for site in (one, two)}
    # The winner's value names all changes that it was made on top of.
    kept, lost = json.loads(body), told(one) + told(two)
    assert sorted(kept + lost) == sorted(authors)
    assert lost
    warned = [each.args[1] for each in caplog.records if each.args[0] == "note/x"]
    assert sorted(warned) == sorted(lost)


async def test_a_loser_is_told_with_what_it_wanted_and_who_won(sites, clock):
    one, two, _ = sites
    await add(one, "ada")
    await trio.sleep(1)
    await add(two, "bob")
    connect(clock, one, two)
    await trio.sleep(1)
    for site in (one, two):
        *_, entry = site.metadata.trail.entries
        assert (entry.action, entry.dc, entry.author.by) == (OVERRULED, "dc1", "ada")
        assert (entry.winner.author.by, entry.winner.dc) == ("bob", "dc2")
        assert (entry.before, entry.after) == (b'["ada"]', b'["bob"]')
        assert entry.author.reason == "why ada"


async def test_a_deletion_that_wins_over_a_later_change_tells_it(sites, clock):
    one, two, _ = sites
    connect(clock, one, two)
    await add(one, "ada")
    await trio.sleep(1)
    for site in (one, two):
        for source in ("dc1", "dc2"):
            if source != site.dc:
                await site.supervisor.stop(f"replicator-{source}")
    with changes_of(Author("eve")):
        await one.metadata.change(delete("note/x"))
    await trio.sleep(1)
    await add(two, "bob")
    connect(clock, one, two)
    await trio.sleep(1)
    assert told(two) == ["bob"]
    assert told(one) == []
    assert not two.metadata.register("note/x").is_alive


async def test_each_change_shows_once_everywhere_with_its_author_and_place(sites, clock):
    connect(clock, *sites)
    for number in range(9):
        await add(sites[number % 3], f"a{number}")
        await trio.sleep(1)
    for site in sites:
        made = [(each.author.by, each.dc, each.action) for each in site.metadata.trail.entries]
        assert made == [
            (f"a{number}", f"dc{number % 3 + 1}", "changed" if number else "created")
            for number in range(9)
        ]


async def test_a_change_that_comes_after_one_made_on_top_of_it_is_late_and_not_lost(sites, clock):
    one, two, three = sites
    connect(clock, one, three)
    await add(one, "ada")
    await trio.sleep(1)
    await add(three, "bob")
    connect(clock, two, three)
    await trio.sleep(1)
    assert json.loads(two.metadata.register("note/x").body) == ["ada", "bob"]
    # What dc1 accepted reaches dc2 only now.
    source = Replicator(one.log, two.metadata, clock=clock, rng=random.Random(1))
    two.supervisor.start_task("late", source.run)
    await trio.sleep(1)
    assert [each.author.by for each in two.metadata.trail.entries] == ["bob", "ada"]
    assert told(two, "dc1") == []


async def test_a_log_read_again_gives_the_same_entries(sites, clock):
    one, two, _ = sites
    connect(clock, one, two)
    async with trio.open_nursery() as nursery:
        for number in range(60):
            nursery.start_soon(add, (one, two)[number % 2], f"a{number}")
    await trio.sleep(2)
    past, read = Past(one.metadata), []
    end = one.metadata.state.position
    while past.position < end:
        read += await past.next(end)
    assert read == list(one.metadata.trail.entries)


def test_memory_holds_the_newest_changes_within_its_bounds():
    trail, held = Trail(entries_max=10, bytes_max=1_000), None
    for offset in range(100):
        register = Register("note/x", 0, offset + 1, "dc1", b"x" * (offset % 7 * 100))
        record = StoredRecord(0, offset, offset, None, b"", (replaced_header(held),))
        trail.note(record, Folded(changed=register, before=held, is_accepted_here=True))
        held = register
        assert len(trail.entries) <= 10
        assert sum(each.size_bytes for each in trail.entries) <= 1_000
        assert trail.dropped[0] + len(trail.entries) == offset
        assert trail.after(trail.dropped, 3) == list(trail.entries)[:3]
        for index, each in enumerate(trail.entries):
            assert trail.after(each.place, 3) == list(trail.entries)[index + 1 : index + 4]
    assert {each.author.by for each in trail.entries} == {UNKNOWN}
