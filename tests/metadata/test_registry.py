"""The registry over a memory log: changes, outages, restarts, refolds, watches."""

import msgspec
import pytest
import trio
import trio.testing

from hermes_actors.errors import Refused, StartupError, Unavailable
from hermes_actors.log.memory import MemoryLog
from hermes_actors.metadata.bodies import group_body, subscription_body, topic_body
from hermes_actors.metadata.catalog import GroupChanged, OtherChanged, TopicChanged
from hermes_actors.metadata.commands import (
    NOTHING_SEEN,
    Absent,
    Accepted,
    Childless,
    Put,
    Rejected,
    Seen,
    StampIs,
    delete,
    encode,
    put,
)
from hermes_actors.metadata.keys import group_key, subscription_key, topic_key, topics_below
from hermes_actors.metadata.registry import OutcomeUnknown
from hermes_actors.model.group import Group
from hermes_actors.model.names import SubscriptionName, TopicName
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack

GROUP = put(group_key("shop"), group_body(Group("shop")), Absent(group_key("shop")))


async def test_a_change_is_shown_when_it_returns(autojump_clock, open_site, topic):
    async with open_site() as site:
        name = TopicName("shop", "orders")
        assert isinstance(await site.metadata.change(GROUP), Accepted)
        outcome = await site.metadata.change(put(topic_key(name), topic_body(topic("shop.orders"))))
        live = site.metadata.catalog.topics["shop.orders"]
        assert outcome == Accepted(live.incarnation, live.stamp)
        assert (live.name, live.log_topic, live.incarnation) == (name, "shop.orders", 0)
        refused = await site.metadata.change(
            delete(group_key("shop"), Childless(topics_below("shop")))
        )
        assert refused == Rejected(Childless(topics_below("shop")))


async def test_two_nodes_on_one_log_agree_and_only_one_of_two_racing_changes_wins(
    autojump_clock, open_site, clock
):
    log = MemoryLog("dc1", clock)
    async with open_site(log=log, seed=1) as one, open_site(log=log, seed=2) as two:
        outcomes = []

        async def change(site):
            outcomes.append(await site.metadata.change(GROUP))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(change, one)
            nursery.start_soon(change, two)
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Accepted", "Rejected"]
        await trio.sleep(1)
        assert one.metadata.state.snapshot() == two.metadata.state.snapshot()
        assert one.metadata.state.log_id


async def test_an_outage_is_waited_out_and_health_says_so(autojump_clock, open_site):
    async with open_site() as site:
        await site.metadata.wait_current()
        site.log.faults.cut()
        await trio.sleep(20)
        assert not site.metadata.is_current
        assert "unavailable" in site.metadata.health.reason
        with pytest.raises(Unavailable, match="not stored") as failure:
            await site.metadata.change(GROUP, timeout_s=3)
        assert not isinstance(failure.value, OutcomeUnknown)
        site.log.faults.heal()
        await site.metadata.wait_current()
        assert isinstance(await site.metadata.change(GROUP), Accepted)


async def test_a_log_that_does_not_answer_makes_the_health_stale(autojump_clock, open_site):
    async with open_site() as site:
        await site.metadata.wait_current()
        site.log.faults.reads_silent = True
        await trio.sleep(20)
        assert "does not answer" in site.metadata.health.reason
        site.log.faults.heal()
        await site.metadata.wait_current()


async def test_a_lost_acknowledgement_still_gives_the_one_outcome(autojump_clock, open_site):
    async with open_site() as site:
        await site.metadata.wait_current()
        site.log.faults.acknowledgement_lost_rate = 1.0
        assert isinstance(await site.metadata.change(GROUP), Accepted)


async def test_an_unknown_outcome_says_so_and_its_repetition_is_harmless(autojump_clock, open_site):
    async with open_site() as site:
        await site.metadata.wait_current()
        site.log.faults.silent = True
        with pytest.raises(OutcomeUnknown) as failure:
            await site.metadata.change(GROUP, timeout_s=3)
        site.log.faults.heal()
        command_id = failure.value.command_id
        # The first try was stored late: without the same id this would be rejected as not absent.
        first = await site.metadata.change(GROUP, command_id=command_id)
        assert isinstance(first, Accepted)
        assert await site.metadata.change(GROUP, command_id=command_id) == first


async def test_more_changes_than_may_wait_are_refused_at_once(autojump_clock, clock, open_site):
    async with open_site() as site:
        await site.metadata.wait_current()
        site.metadata._pending._pending_max = 1
        site.log.faults.silent = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(site.metadata.change, GROUP)
            await trio.sleep(0.1)
            with pytest.raises(Unavailable, match="nothing was stored"):
                await site.metadata.change(GROUP)
            site.log.faults.heal()


async def test_what_no_log_would_take_is_refused_before_it_is_appended(autojump_clock, open_site):
    async with open_site() as site:
        with pytest.raises(Refused, match="make it smaller"):
            await site.metadata.change(put("note/x", b"x" * 1_000_001))
        with pytest.raises(Refused, match="not a valid change"):
            await site.metadata.change(put("note/x", b"", Childless("note")))
        with pytest.raises(Refused, match="not a valid change"):
            await site.metadata.change(put("", b""))


async def test_a_restarted_registry_serves_on_and_tells_only_true_differences(
    autojump_clock, open_site
):
    async with open_site() as site:
        await site.metadata.change(GROUP)
        with site.metadata.watch() as watch:
            assert [type(each) for each in watch.take_nowait()] == [GroupChanged]
            site.supervisor.crash("registry")
            await trio.testing.wait_all_tasks_blocked()
            assert not site.metadata.is_current
            assert "shop" in site.metadata.catalog.groups
            await site.metadata.wait_current()
            assert watch.take_nowait() == []
            await site.metadata.change(delete(group_key("shop")))
            assert watch.take_nowait() == [GroupChanged("shop", None)]


async def test_a_change_under_way_survives_a_crash_of_the_registry(autojump_clock, open_site):
    async with open_site() as site:
        await site.metadata.wait_current()
        site.log.faults.delay_s = (1.0, 1.0)
        async with trio.open_nursery() as nursery:
            outcomes = []

            async def change():
                outcomes.append(await site.metadata.change(GROUP))

            nursery.start_soon(change)
            await trio.sleep(0.5)
            site.supervisor.crash("registry")
        assert [type(outcome) for outcome in outcomes] == [Accepted]


async def test_a_watch_gives_the_state_first_and_merges_what_was_not_read(
    autojump_clock, open_site, topic
):
    async with open_site() as site:
        name = TopicName("shop", "orders")
        await site.metadata.change(GROUP)
        with site.metadata.watch() as watch:
            for number in range(50):
                body = topic_body(
                    msgspec.structs.replace(topic("shop.orders"), description=str(number))
                )
                await site.metadata.change(put(topic_key(name), body))
            await site.metadata.change(put("readiness/dc1", b"{}"))
            group, changed, other = watch.take_nowait()
            assert isinstance(group, GroupChanged)
            assert isinstance(changed, TopicChanged)
            assert changed.topic is not None
            assert changed.topic.topic.description == "49"
            assert isinstance(other, OtherChanged)
            assert site.metadata.register("readiness/dc1") == other.register
            with site.metadata.watch() as late:
                assert late.take_nowait() == [group, changed, other]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(site.metadata.change, delete(topic_key(name)))
                assert [await watch.__anext__()] == [TopicChanged("shop.orders", None)]
        assert [each async for each in watch] == []


async def test_a_log_made_anew_is_noticed_and_folded_again(autojump_clock, open_site):
    async with open_site() as site:
        await site.metadata.change(GROUP)
        old_id = site.metadata.state.log_id
        await site.log.topics.delete(site.metadata.topic)
        await trio.sleep(20)
        await site.metadata.wait_current()
        assert site.metadata.state.log_id not in ("", old_id)
        assert site.metadata.catalog.groups == {}
        assert isinstance(await site.metadata.change(GROUP), Accepted)


def lose_the_last_record(site):
    """A leader that had not copied the last record took over."""
    partition = site.log.topics.known(site.metadata.topic).partitions[0]
    del partition.records[-1]
    partition.replicated = partition.end


async def test_a_log_rewritten_below_the_fold_is_noticed_by_its_content(
    autojump_clock, open_site, clock
):
    async with open_site() as site:
        await site.metadata.change(GROUP)
        lose_the_last_record(site)
        record = encode(Put("1", "note/1", b"", (), NOTHING_SEEN), clock.now_ms())
        await site.log.append(site.metadata.topic, 0, [record], Ack.ALL)
        await trio.sleep(20)
        assert site.metadata.is_current
        assert list(site.metadata.catalog.others) == ["note/1"]
        assert site.metadata.catalog.groups == {}


async def test_a_log_rewritten_and_written_on_is_noticed_by_what_its_writers_saw(
    autojump_clock, open_site, clock
):
    async with open_site() as site:
        await site.metadata.change(GROUP)
        lose_the_last_record(site)
        records = [
            encode(Put("1", "note/1", b"", (), NOTHING_SEEN), clock.now_ms()),
            encode(Put("2", "note/2", b"", (), Seen(1, "1")), clock.now_ms()),
        ]
        await site.log.append(site.metadata.topic, 0, records, Ack.ALL)
        await trio.sleep(1)
        assert site.metadata.is_current
        assert sorted(site.metadata.catalog.others) == ["note/1", "note/2"]
        assert site.metadata.catalog.groups == {}


async def test_a_node_whose_log_is_down_at_its_start_shows_another_datacentre(
    autojump_clock, open_site
):
    async with open_site("dc2") as other:
        await other.metadata.change(GROUP)
        async with open_site("dc1", standins=(other.metadata,)) as site:
            site.log.faults.cut()
            await site.metadata.wait_readable()
            assert "shop" in site.metadata.catalog.groups
            assert not site.metadata.is_current
            assert not site.metadata.is_own
            site.log.faults.heal()
            await site.metadata.wait_current()
            assert site.metadata.is_own
            assert site.metadata.catalog.groups == {}


async def test_a_log_that_refuses_the_metadata_topic_is_told_of_and_ends_no_node(
    autojump_clock, open_site, clock, monkeypatch
):
    log = MemoryLog("dc1", clock)

    async def refuse(_topic, _settings):
        raise ValueError("the policy wants retention.ms to be set")

    monkeypatch.setattr(log.topics, "create", refuse)
    async with open_site("dc1", log=log) as site:
        await trio.sleep(120)
        assert "the policy wants retention.ms" in site.metadata.health.reason
        monkeypatch.undo()
        await site.metadata.wait_current()


async def test_a_log_of_another_datacentre_stops_the_node_with_a_clear_error(
    autojump_clock, open_site, clock
):
    log = MemoryLog("dc1", clock)
    async with open_site("dc1", log=log) as site:
        await site.metadata.wait_current()
    log.dc = "dc9"
    crashes = []
    async with open_site("dc9", log=log) as site:
        site.supervisor._on_crash = crashes.append
        await trio.sleep(0.5)
    assert isinstance(crashes[0].error, StartupError)
    assert "belongs to datacentre 'dc1'" in crashes[0].error.message
    assert "kafka.clusters.dc9" in crashes[0].error.message


async def test_a_stamp_precondition_lets_only_an_unchanged_register_be_changed(
    autojump_clock, open_site
):
    async with open_site() as site:
        first = await site.metadata.change(put("note/x", b"1"))
        assert isinstance(first, Accepted)
        mine = put("note/x", b"2", StampIs("note/x", first.stamp))
        assert isinstance(await site.metadata.change(mine), Accepted)
        assert isinstance(await site.metadata.change(mine), Rejected)


async def test_what_cannot_be_decoded_is_skipped_counted_and_told_alike_on_every_node(
    autojump_clock, open_site, clock
):
    newer = msgspec.msgpack.decode(encode(Put("9", "note/9", b"", (), NOTHING_SEEN), 0).value)
    values = [b"garbage", b"", msgspec.msgpack.encode({**newer, "v": 2})]
    async with open_site() as one, open_site(log=one.log, seed=1) as two:
        await one.metadata.change(GROUP)
        records = [Record(None, value, (), clock.now_ms()) for value in values]
        last = (await one.log.append(one.metadata.topic, 0, records, Ack.ALL))[-1]
        assert isinstance(await two.metadata.change(put("note/1", b"")), Accepted)
        await trio.sleep(20)
        for site in (one, two):
            assert site.metadata.is_current
            assert site.metadata.refolds == 0
            assert site.metadata.state.undecodable == 3
            (notice,) = site.metadata.notices()
            assert notice.startswith("3 commands of the metadata log of dc1 had no effect")
            assert f"the last, at {last.offset}:" in notice
            assert "`$.v`" in notice
        assert one.metadata.state.snapshot() == two.metadata.state.snapshot()


async def test_a_log_that_answers_again_is_noticed_within_a_second(autojump_clock, open_site):
    async with open_site() as site:
        await site.metadata.wait_current()
        # Its reader waits by now, and notices nothing.
        await trio.sleep(1)
        site.log.faults.reads_failing = True
        await trio.sleep(7)
        assert not site.metadata.is_current
        site.log.faults.heal()
        await trio.sleep(1)
        assert site.metadata.is_current


async def test_a_log_whose_records_were_all_deleted_is_made_anew(autojump_clock, open_site):
    async with open_site() as site:
        await site.metadata.change(GROUP)
        old_id = site.metadata.state.log_id
        partition = site.log.topics.known(site.metadata.topic).partitions[0]
        partition.start = partition.end
        partition.records.clear()
        site.log.faults.unavailable_rate = 1.0
        site.supervisor.crash("registry")
        await trio.sleep(20)
        assert not site.metadata.is_current
        site.log.faults.heal()
        await site.metadata.wait_current()
        assert site.metadata.state.log_id not in ("", old_id)
        assert isinstance(await site.metadata.change(GROUP), Accepted)


async def test_a_log_that_is_read_again_is_compared_though_another_datacentre_is_away(
    autojump_clock, open_site, clock
):
    async with open_site("dc2") as there, open_site("dc3") as away:
        away.log.faults.reads_failing = True
        standins = (there.metadata, away.metadata)
        async with open_site("dc1", standins=standins) as site:
            await trio.sleep(30)
            assert "dc2" not in site.metadata.lacking
            await site.metadata.change(GROUP)
            stray = Put("stray", "note/x", b"", (), Seen(1, "another history"))
            await site.log.append(site.metadata.topic, 0, [encode(stray, clock.now_ms())], Ack.ALL)
            await trio.sleep(30)
            assert site.metadata.refolds == 1
            assert "dc2" not in site.metadata.lacking
            assert "dc3 does not answer yet" in site.metadata.lacking
            away.log.faults.reads_failing = False
            await trio.sleep(60)
            assert site.metadata.lacking == site.metadata.behind == ""


async def test_what_another_datacentre_holds_beside_is_compared_a_thousand_at_a_time(
    autojump_clock, open_site, clock
):
    held = 2_500
    async with open_site("dc2") as other:
        await other.metadata.wait_current()
        puts = [Put(f"{n}", f"note/{n}", b"", (), NOTHING_SEEN) for n in range(held)]
        records = [encode(each, 0) for each in puts]
        await other.log.append(other.metadata.topic, 0, records, Ack.ALL)
        await trio.sleep(1)
        assert len(other.metadata.state.registers) == held
        async with open_site("dc1", standins=(other.metadata,)) as own:
            compared, register = [0], own.metadata.register

            def counted(key):
                compared[0] += 1
                return register(key)

            own.metadata.register = counted
            await trio.sleep(1)
            assert f"{held} changes that dc2 holds are not in the log of dc1" in own.metadata.behind
            before = compared[0]
            await trio.sleep(10)
            assert compared[0] - before <= 101 * 1_000
            await own.log.append(own.metadata.topic, 0, records, Ack.ALL)
            await trio.sleep(1)
            assert own.metadata.behind == ""


async def test_a_change_by_this_version_keeps_the_fields_that_a_newer_one_has_stored(
    autojump_clock, open_site, topic
):
    key, old = topic_key(TopicName("shop", "orders")), topic("shop.orders")
    owner = {"source": "Plaintext", "id": "team", "pager": "p1"}
    newer = msgspec.to_builtins(old) | {"owner": owner, "tiered": {"after": 3}}
    async with open_site() as site:
        await site.metadata.change(put(key, msgspec.json.encode(newer)))
        changed = msgspec.structs.replace(old, description="new")
        await site.metadata.change(put(key, topic_body(changed)))
        assert site.metadata.catalog.topics["shop.orders"].topic.description == "new"
        kept = msgspec.json.decode(site.metadata.register(key).body)
        assert (kept["description"], kept["tiered"]) == ("new", {"after": 3})
        assert kept["owner"]["pager"] == "p1"


async def test_a_part_that_is_taken_away_takes_its_unknown_fields_with_it(
    autojump_clock, open_site, topic, subscription
):
    name = SubscriptionName.parse("shop.orders$push")
    key, plain = subscription_key(name), subscription("shop.orders", "push")
    body = msgspec.json.decode(subscription_body(plain, 0))
    newer = body | {"suspended": {"atMs": 1, "ticket": "t1"}, "labelled": True}
    async with open_site() as site:
        await site.metadata.change(put(topic_key(name.topic), topic_body(topic("shop.orders"))))
        await site.metadata.change(put(key, msgspec.json.encode(newer)))
        await site.metadata.change(put(key, subscription_body(plain, 0)))
        assert site.metadata.catalog.subscriptions[str(name)].suspension is None
        kept = msgspec.json.decode(site.metadata.register(key).body)
        assert "suspended" not in kept
        assert kept["labelled"] is True


async def test_a_topic_of_a_newer_version_may_exist_although_it_cannot_be_decoded(
    autojump_clock, open_site, topic
):
    """A publisher gives up after a 404, and tries a node of the newer version after a 503."""
    newer = msgspec.to_builtins(topic("shop.orders")) | {"ack": "QUORUM"}
    async with open_site() as site:
        body = msgspec.json.encode(newer)
        await site.metadata.change(put(topic_key(TopicName("shop", "orders")), body))
        assert "newer" in site.metadata.doubt_about("shop.orders")
        assert site.metadata.doubt_about("shop.others") == ""
        assert site.metadata.doubt_about("no name") == ""
