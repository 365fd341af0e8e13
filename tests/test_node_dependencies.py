"""Which dependencies keep a node from being ready."""

from dataclasses import replace

import trio
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.config import Config
from hermes_actors.log.memory import MemoryLog
from hermes_actors.node import open_node
from hermes_actors.node.dependencies import NodeFacts, dependencies_of
from hermes_actors.status.dependencies import Dependency, notices, reasons
from hermes_chaos.sim.environment.clock import SimulatedClock
from hermes_chaos.sim.environment.surroundings import surroundings

TROUBLE = st.sampled_from(["", "away"])
MAYBE = st.none() | TROUBLE
SOME = st.dictionaries(st.sampled_from(["dc2", "dc3"]), TROUBLE)
FACTS = st.builds(
    NodeFacts,
    publishes=st.booleans(),
    consumes=st.booleans(),
    metadata=TROUBLE,
    standing_in=TROUBLE,
    behind=TROUBLE,
    lacking=TROUBLE,
    log=TROUBLE,
    log_lost=TROUBLE,
    spool=MAYBE,
    traffic=st.sampled_from([(), (Dependency("datacentre dc1", "marked", is_needed=True),)]),
    coordination=MAYBE,
    remote_logs=SOME,
    duties=SOME,
    loop=TROUBLE,
)


def told(**facts):
    return reasons(dependencies_of(NodeFacts(**{"publishes": True, "consumes": True, **facts})))


@given(FACTS)
def test_what_is_another_datacentres_or_a_duty_never_keeps_a_node_from_being_ready(facts):
    found = dependencies_of(facts)
    other = {f"log {dc}" for dc in facts.remote_logs} | set(facts.duties) | {"event loop"}
    assert not any(each.is_needed for each in found if each.name in other)


@given(FACTS)
def test_nothing_is_ready_without_its_metadata_nor_with_files_that_are_gone(facts):
    found = reasons(dependencies_of(facts))
    if facts.metadata:
        assert any(each.startswith("metadata: ") for each in found)
    if facts.log_lost:
        assert f"log: {facts.log_lost}" in found


@given(FACTS)
def test_a_working_spool_keeps_publishing_ready_whatever_the_log_does(facts):
    is_kept = facts.publishes and facts.spool == ""
    found = dependencies_of(facts)
    if facts.log and not facts.log_lost:
        assert (f"log: {facts.log}" in reasons(found)) is not is_kept
        assert (f"log: {facts.log}" in notices(found)) is is_kept


@given(FACTS)
def test_coordination_counts_on_nodes_that_consume_and_do_not_publish(facts):
    found = reasons(dependencies_of(facts))
    counts = facts.consumes and not facts.publishes
    assert ("coordination: away" in found) == (counts and facts.coordination == "away")


@given(FACTS)
def test_every_trouble_is_told_and_no_name_stands_twice(facts):
    found = dependencies_of(facts)
    names = [each.name for each in found if each.name not in facts.duties]
    assert len(names) == len(set(names))
    is_well = not any(
        (
            *(facts.metadata, facts.standing_in, facts.behind, facts.lacking, facts.loop),
            *(facts.log, facts.log_lost, facts.traffic, facts.coordination),
            facts.spool,
            *facts.remote_logs.values(),
            *facts.duties.values(),
        )
    )
    assert (reasons(found) + notices(found) == []) is is_well


@given(FACTS)
def test_metadata_that_are_well_are_shown_as_needed(facts):
    metadata = dependencies_of(facts)[0]
    assert metadata.is_needed or metadata.trouble


def test_what_other_datacentres_may_hold_counts_for_who_publishes_until_nobody_waits_for_it():
    assert told(behind="2 changes", spool="") == ["metadata: 2 changes"]
    assert told(lacking="2 changes", spool="") == []
    assert told(behind="2 changes", publishes=False) == []


def test_another_datacentres_metadata_will_do_for_who_keeps_what_is_published():
    assert told(standing_in="not read", spool="") == []
    assert told(standing_in="not read", spool="full") == ["metadata: not read"]
    assert told(standing_in="not read", publishes=False) == ["metadata: not read"]


def test_a_spool_that_takes_nothing_counts_only_with_the_log_that_it_stands_in_for():
    assert told(spool="the disk is full") == []
    assert told(spool="full", log="away") == ["log: away", "spool: full"]


def names(node):
    return [each.name for each in node.dependencies()]


async def test_a_node_that_only_consumes_is_ready_when_it_takes_part(autojump_clock):
    clock = SimulatedClock()
    log = MemoryLog("dc1", clock)
    async with open_node(Config(roles=["consumers"]), surroundings(clock, log)) as node:
        await node.wait_prepared()
        node.drain.open()
        assert not node.drain.is_ready
        (reason,) = reasons(node.drain.dependencies())
        assert reason.startswith("coordination: ")
        await trio.sleep(5)
        assert node.drain.is_ready
        log.faults.unavailable_rate = 1.0
        await trio.sleep(5)
        told = "coordination: its own heartbeats are not seen, so it delivers nothing"
        assert reasons(node.drain.dependencies()) == [told]
        log.faults.unavailable_rate = 0.0
        await trio.sleep(5)
        assert node.drain.is_ready


async def test_a_node_of_all_roles_tells_of_all_it_works_with_and_needs_the_least(autojump_clock):
    clock, away = SimulatedClock(), []
    own, other = MemoryLog("dc1", clock), MemoryLog("dc2", clock)
    environment = replace(
        surroundings(clock, own, other),
        log_trouble=lambda: "".join(away),
        remote_trouble=lambda _dc: "it does not answer",
    )
    async with open_node(Config(), environment) as node:
        await node.wait_prepared()
        node.drain.open()
        await trio.sleep(5)
        assert {"metadata", "log", "coordination", "log dc2", "event loop"} <= set(names(node))
        assert node.drain.is_ready
        assert node.notices() == ["log dc2: it does not answer"]
        away.append("it is away")
        # There is no spool: what is published would be lost.
        assert reasons(node.drain.dependencies()) == ["log: it is away"]
        assert node.doubt_about("shop.nothing") == "log: it is away"
        away.clear()
        assert node.doubt_about("shop.nothing") == ""
