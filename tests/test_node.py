"""What a whole node says of the duties that only one node of a datacentre has."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import trio

from hermes_actors.actors.supervisor import RestartIntensityExceeded
from hermes_actors.config import Config, ManagementConfig, MetadataConfig, SecurityConfig
from hermes_actors.config.security import (
    CertificateConfig,
    JwtConfig,
    ManagementAuthenticationConfig,
)
from hermes_actors.log.base import LATEST, TopicSettings
from hermes_actors.log.memory import MemoryLog
from hermes_actors.metadata.commands import METADATA_TOPIC, LogCreated, encode
from hermes_actors.model.topic import Ack
from hermes_actors.node import open_node, root
from hermes_actors.status.dependencies import reasons
from hermes_actors.telemetry.metrics import render
from hermes_chaos.sim.environment.clock import SimulatedClock
from hermes_chaos.sim.environment.surroundings import create_shop, surroundings
from tests.nodes_scene import memory_spool


def config_of(**metadata):
    return Config(roles=["management"], metadata=MetadataConfig(**metadata))


def in_trouble(node):
    lines = render(node.metrics).decode().splitlines()
    return {
        line.partition('part="')[2].partition('"')[0]: float(line.split()[-1])
        for line in lines
        if line.startswith("hermes_metadata_is_in_trouble{")
    }


async def test_copying_that_does_not_get_on_is_told_of(autojump_clock):
    clock = SimulatedClock()
    own, other = MemoryLog("dc1", clock), MemoryLog("dc2", clock)
    async with open_node(config_of(), surroundings(clock, own, other)) as node:
        await node.metadata.wait_current()
        await trio.sleep(10)
        assert await node.administration.health.shown() == {"status": "UP"}
        assert in_trouble(node) == {"replicator dc2": 0, "reconciler": 0}

        other.faults.reads_failing = True
        await trio.sleep(90)
        (notice,) = (await node.administration.health.shown())["notices"]
        assert notice.startswith("replicator dc2: dc2 to dc1: ")
        assert in_trouble(node) == {"replicator dc2": 1, "reconciler": 0}

        other.faults.reads_failing = False
        await trio.sleep(90)
        assert await node.administration.health.shown() == {"status": "UP"}
        assert in_trouble(node) == {"replicator dc2": 0, "reconciler": 0}


@pytest.mark.parametrize("name", ["", "another"])
async def test_a_node_that_only_publishes_copies_if_it_is_named(name, autojump_clock):
    clock = SimulatedClock()
    own, other = MemoryLog("dc1", clock), MemoryLog("dc2", clock)
    config = Config(roles=["frontend"], metadata=MetadataConfig(replicator=name))
    async with open_node(config, surroundings(clock, own, other)) as node:
        await node.metadata.wait_current()
        assert in_trouble(node) == {}
    named = msgspec.structs.replace(config, metadata=MetadataConfig(replicator=config.node))
    async with open_node(named, surroundings(clock, own, other)) as node:
        await node.metadata.wait_current()
        assert in_trouble(node) == {"replicator dc2": 0, "reconciler": 0}


async def test_into_another_datacentres_log_a_node_writes_nothing(autojump_clock):
    clock = SimulatedClock()
    foreign = MemoryLog("dc1", clock)  # Configured as dc1's; dc2's nodes began it.
    created = encode(LogCreated("an id", "dc2"), clock.now_ms())
    await foreign.topics.create(METADATA_TOPIC, TopicSettings(1, None, log_append_time=True))
    await foreign.append(METADATA_TOPIC, 0, [created], Ack.ALL)
    with pytest.raises(RestartIntensityExceeded, match="belongs to datacentre 'dc2'"):
        async with open_node(config_of(), surroundings(clock, foreign, MemoryLog("dc2", clock))):
            await trio.sleep(60)
    assert await foreign.topics.names() == [METADATA_TOPIC]
    assert await foreign.positions(METADATA_TOPIC, LATEST) == {0: 1}


class FailedLate(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("role", ["frontend", "consumers"])
async def test_a_start_that_fails_late_says_nothing_but_why(role, caplog, autojump_clock):
    clock = SimulatedClock()
    own, other = MemoryLog("dc1", clock), MemoryLog("dc2", clock)
    async with open_node(config_of(), surroundings(clock, own, other)) as node:
        await node.metadata.wait_current()
        await create_shop(node.administration, "http://10.255.255.1:9/")
    config = Config(roles=[role])
    for checkpoints in range(60):
        environment = surroundings(clock, own, other)
        with pytest.raises((FailedLate, ExceptionGroup)):
            async with open_node(config, environment):
                for _ in range(checkpoints):
                    await trio.lowlevel.checkpoint()
                raise FailedLate
        assert caplog.messages == [], checkpoints


@pytest.mark.parametrize(
    ("security", "fields"),
    [
        (SecurityConfig(), None),
        (SecurityConfig(users_file="users.toml"), "security.users_file is without effect"),
        (
            SecurityConfig(
                jwt=JwtConfig(jwks_url="https://keys.example.com/"),
                certificates=CertificateConfig(enabled=True),
                plugins=["acme:make"],
            ),
            "security.jwt.jwks_url, security.certificates.enabled, security.plugins are without",
        ),
    ],
)
async def test_mechanisms_that_nobody_asks_for_are_warned_of(
    security, fields, caplog, autojump_clock
):
    clock = SimulatedClock()
    logs = MemoryLog("dc1", clock), MemoryLog("dc2", clock)
    config = msgspec.structs.replace(config_of(), security=security)
    async with open_node(config, surroundings(clock, *logs)) as node:
        await node.metadata.wait_current()
    if fields is None:
        assert caplog.messages == []
        return
    (message,) = caplog.messages
    assert fields in message
    assert "frontend.authentication.enabled" in message
    assert "management.authentication.enabled" in message


async def test_mechanisms_that_somebody_asks_for_are_not_warned_of(caplog, autojump_clock):
    clock = SimulatedClock()
    logs = MemoryLog("dc1", clock), MemoryLog("dc2", clock)
    config = msgspec.structs.replace(
        config_of(),
        security=SecurityConfig(certificates=CertificateConfig(enabled=True)),
        management=ManagementConfig(authentication=ManagementAuthenticationConfig(enabled=True)),
    )
    async with open_node(config, surroundings(clock, *logs)) as node:
        await node.metadata.wait_current()
    assert caplog.messages == []


async def test_a_node_whose_files_were_taken_away_is_not_ready_though_its_spool_would_keep(
    autojump_clock,
):
    clock = SimulatedClock()
    gone = []
    environment = replace(
        surroundings(clock, MemoryLog("dc1", clock)),
        log_trouble=lambda: "".join(gone),
        lost=lambda: "".join(gone),
        open_spool=memory_spool(),
    )
    async with open_node(Config(roles=["frontend"]), environment) as node:
        await node.wait_prepared()
        node.frontend.drain.open()
        await trio.sleep(3)
        assert node.frontend.drain.is_ready
        gone.append("log.sqlite-wal")
        await trio.sleep(1.1)
        assert not node.frontend.drain.is_ready
        (reason,) = reasons(node.drain.dependencies())
        assert reason.startswith("log: ")
        assert "log.sqlite-wal" in reason


async def test_the_drawn_trees_name_all_that_a_node_runs(autojump_clock):
    clock = SimulatedClock()
    own, other = MemoryLog("dc1", clock), MemoryLog("dc2", clock)
    architecture = (Path(__file__).parents[1] / "ARCHITECTURE.md").read_text()
    async with open_node(Config(), surroundings(clock, own, other)) as node:
        await trio.sleep(1)
        running = {
            " ".join("<dc>" if word in ("dc1", "dc2") else word for word in name.split())
            for name in node.control.statistics()
        }
    assert len(running) > 15
    for drawn in (root.__doc__, architecture):
        assert {name for name in running if f"├─ {name}  " not in drawn} - {"agent"} == set()
