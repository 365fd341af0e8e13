"""The metrics of a whole node: what on-call asks about each subscription, and what each means."""

import ast
import re
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from hermes_actors.config import Config
from hermes_actors.consumer.senders.sender import Sender, SendOutcome
from hermes_actors.log.memory import MemoryLog
from hermes_actors.management.access.roles import Anonymous
from hermes_actors.model.message import Message, to_record
from hermes_actors.model.topic import Ack
from hermes_actors.node import open_node
from hermes_actors.node.measures import PARTS, tables
from hermes_actors.telemetry.metrics import render
from hermes_chaos.sim.environment.clock import SimulatedClock
from hermes_chaos.sim.environment.surroundings import create_shop, surroundings

ROOT = Path(__file__).resolve().parents[1]
KINDS = {
    **dict.fromkeys(("counter", "gauge", "gauges", "total", "totals"), ""),
    "timer": "_seconds",
}
PREFIX = "hermes_consumers_subscription_"


class Sink(Sender):
    """Answers each push with the status of the moment."""

    def __init__(self):
        self.status = 200

    def send(self, push, done):
        done(SendOutcome(self.status))


@asynccontextmanager
async def running(sink):
    clock = SimulatedClock()
    log = MemoryLog("dc1", clock)

    async with open_node(Config(), surroundings(clock, log, sender=sink)) as node:
        await node.metadata.wait_current()
        await create_shop(node.administration, "http://sink.test/")
        await trio.sleep(10)
        yield node, log


async def publish(log, *bodies):
    now_ms = SimulatedClock().now_ms()
    records = [to_record(Message(str(at), body, now_ms)) for at, body in enumerate(bodies)]
    await log.append("shop.orders", 0, records, Ack.ALL)


def families(node):
    return list(text_string_to_metric_families(render(node.metrics).decode()))


def figures(node):
    """What is told of billing, by the name without its prefix."""
    return {
        sample.name.removeprefix(PREFIX): sample.value
        for family in families(node)
        for sample in family.samples
        if sample.name.startswith(PREFIX) and sample.labels.get("subscription") == "billing"
    }


async def test_a_dead_endpoint_shows_as_lag_age_level_and_rate(autojump_clock):
    sink = Sink()
    async with running(sink) as (node, log):
        await trio.sleep(20)
        calm = figures(node)
        assert (calm["lag_messages"], calm["oldest_age_seconds"], calm["rate_level"]) == (0, 0, 0)
        assert calm["rate_limit"] == 400
        sink.status = 503
        await publish(log, *[b"{}"] * 40)
        await trio.sleep(45)
        ill = figures(node)
        assert ill["lag_messages"] == 40
        assert 40 <= ill["oldest_age_seconds"] <= 46
        assert ill["rate_level"] == 2
        assert 0 < ill["rate_limit"] <= 1
        assert ill["waiting_retries"] + ill["inflight"] > 0
        assert ill["pending_offsets"] == 40 / Config().consumers.unsettled_span_max


async def test_a_suspended_subscription_shows_what_waits_since_when_and_whose_it_is(
    autojump_clock,
):
    async with running(Sink()) as (node, log):
        await publish(log, b"{}")
        await trio.sleep(20)
        assert "suspended_timestamp_seconds" not in figures(node)
        subscriptions, since_s = node.administration.subscriptions, SimulatedClock().now_ms() / 1e3
        importance = {"monitoringDetails": {"severity": "CRITICAL"}}
        await subscriptions.update(Anonymous(), "shop.orders", "billing", importance)
        await subscriptions.set_state(Anonymous(), "shop.orders", "billing", "SUSPENDED")
        await trio.sleep(5)
        await publish(log, *[b"{}"] * 700)
        await trio.sleep(60)
        found = figures(node)
        assert found["lag_messages"] == 700
        assert 58 <= found["oldest_age_seconds"] <= 60
        assert found["suspended_timestamp_seconds"] == pytest.approx(since_s, abs=1)
        (info,) = [each for each in families(node) if each.name == f"{PREFIX}info"]
        assert [(each.labels, each.value) for each in info.samples] == [
            (
                {
                    "group": "shop",
                    "topic": "orders",
                    "subscription": "billing",
                    "owner": "team",
                    "severity": "critical",
                },
                1,
            )
        ]


async def test_what_a_node_is_to_deliver_and_at_which_rate_has_hermes_names(autojump_clock):
    def shown(node):
        return {
            sample.name.removeprefix("hermes_consumers_"): (sample.value, sample.labels)
            for family in families(node)
            for sample in family.samples
            if sample.name.startswith(("hermes_consumers_workload_", "hermes_consumers_max_rate_"))
        }

    async with running(Sink()) as (node, log):
        await trio.sleep(20)
        await publish(log, *[b"{}"] * 40)
        await trio.sleep(3)
        found = shown(node)
        billing = {"group": "shop", "topic": "orders", "subscription": "billing"}
        assert found["max_rate_calculated_rate"] == (400, billing)
        rate, labels = found["max_rate_actual_rate"]
        assert 0 < rate < 40
        assert labels == billing
        subscriptions = ("running", "assigned", "missing", "oversubscribed")
        counts = [found[f"workload_subscriptions_{each}"][0] for each in subscriptions]
        assert counts == [1, 1, 0, 0]
        assert found["workload_all_assignments"] == (1, {"kafka_cluster": "dc1"})


async def test_open_dead_letters_are_a_metric_a_column_and_a_problem(autojump_clock):
    sink = Sink()
    sink.status = 400
    async with running(sink) as (node, log):
        await publish(log, b"{}", b"{}", b"{}")
        await trio.sleep(60)
        assert figures(node)["open_dead_letters"] == 3
        status = await node.administration.statuses.health("shop.orders", "billing")
        assert status["status"] == "UNHEALTHY"
        (problem,) = status["problems"]
        assert problem["description"].startswith(
            "dead letters to re-drive or expire ('hermes dlq'): 3; "
            "the last message was given up for client-error: "
        )


async def test_each_metric_that_a_node_shows_has_a_meaning(autojump_clock):
    async with running(Sink()) as (node, log):
        await publish(log, b"{}")
        await trio.sleep(5)
        shown = {family.name for family in families(node)}
        assert len(shown) > 60
        known = {name for part in PARTS.values() for name in part}
        assert shown <= known, "add it to the table in its package's measures.py"
        lines = render(node.metrics).decode().splitlines()
        assert ("# HELP hermes_frontend_batch_streams Open batch requests; in requests.") in lines


def named_in(part: Path) -> set[str]:
    """The names that the source gives to metrics, as far as they are written out there."""
    found: set[str] = set()
    source = part.read_text()
    # Most files have none, and need not be parsed.
    if not re.search(rf"metrics\.({'|'.join(KINDS)})\(", source):
        return found
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            of, name = ast.unparse(node.func.value).rpartition(".")[2], node.args[0]
            is_text = isinstance(name, ast.Constant) and isinstance(name.value, str)
            if node.func.attr in KINDS and of in ("metrics", "_metrics") and is_text:
                found.add(ast.literal_eval(name) + KINDS[node.func.attr])
    return found


def test_every_metric_that_the_source_names_has_a_unit_and_a_meaning():
    names = {name for path in (ROOT / "hermes_actors").rglob("*.py") for name in named_in(path)}
    # All but a few: a name that is not seen here may have no meaning.
    assert len(names) > 60
    known = {name.split("_", 2)[2] for part in PARTS.values() for name in part}
    assert names <= known, "add it to the table in its package's measures.py"


def test_the_documentation_has_the_tables_of_the_source():
    documented = (ROOT / "docs" / "metrics.md").read_text()
    assert documented.endswith(f"\n\n{tables()}\n"), "run `make metrics`"


async def test_a_subscription_that_is_gone_leaves_no_series(autojump_clock):
    async with running(Sink()) as (node, _log):
        assert figures(node)
        await node.administration.subscriptions.delete(Anonymous(), "shop.orders", "billing")
        await trio.sleep(5)
        assert figures(node) == {}
