"""Nodes of an earlier version beside those of this one: a rolling upgrade under load, the way back,
and a spool and an embedded log that both use.
"""

import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes_chaos.live.load import NO_ANSWER, NO_CONNECTION, Account, Subscribers, publishing
from hermes_chaos.live.scrape import Scrape
from hermes_chaos.live.site import NodeProcess, ask
from hermes_chaos.wanted import subscription_body, topic_body
from tests.live.endpoint import Endpoint
from tests.live.waiting import wait_until

pytestmark = [pytest.mark.live, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

PREVIOUS = "b383a422"
"""The earlier version: a commit or tag. Each release sets it to its own tag (CONTRIBUTING.md)."""
RATE_PER_S = 60.0
STEP_S = 3.0
WITHIN_S = 120.0
DELIVERED = "hermes_consumers_subscription_delivered_total"
UNKNOWN = ("hermes_metadata_undecodable_commands", "hermes_metadata_undecodable_bodies")

in_thread = trio.to_thread.run_sync


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the earlier version's code, which runs with this version's dependencies."""
    folder = tmp_path_factory.mktemp("previous")
    command = ["git", "archive", PREVIOUS, "hermes_actors"]
    try:
        archive = subprocess.run(
            command, cwd=Path(__file__).parents[2], capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"the earlier version {PREVIOUS} is not in this checkout's history: {error}")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


@pytest.fixture
def node_of(tmp_path: Path) -> Iterator[Callable[..., NodeProcess]]:
    """`node_of(name, source, **variables)`: a started node with all roles, ended with the test."""
    nodes: list[NodeProcess] = []

    def start(name: str, source: Path | None, **variables: str) -> NodeProcess:
        node = NodeProcess(
            name,
            tmp_path,
            {
                "HERMES_LOG_DIRECTORY": str(tmp_path / "log"),
                "HERMES_SPOOL_DIRECTORY": str(tmp_path / "spools"),
                "HERMES_FRONTEND_GRACEFUL_SHUTDOWN_INITIAL_WAIT_MS": "0",
                "HERMES_METADATA_REPLICATOR": name,
                **variables,
            },
        )
        nodes.append(node)
        node.source = source
        node.begin()
        node.wait_ready()
        return node

    yield start
    for node in nodes:
        node.kill()


def replace_by(node: NodeProcess, source: Path | None) -> None:
    """Drain the node, and start it again with that version's code."""
    node.stop()
    node.source = source
    node.begin()
    node.wait_ready()


def must(method: str, url: str, body: Any = None) -> Any:
    """Send the request until it succeeds: a node may not have heard of the other's change yet."""

    def attempt() -> tuple[Any] | None:
        status, answer = ask(method, url, body)
        return (answer,) if status in (200, 201) else None

    return wait_until(attempt, f"{method} {url}")[0]


def create(node: NodeProcess, topic: str) -> None:
    ask("POST", f"{node.management}/groups", {"groupName": topic.partition(".")[0]})
    must("POST", f"{node.management}/topics", topic_body(topic))


def subscribe(node: NodeProcess, topic: str, name: str, endpoint: str) -> None:
    """The subscription, changed at once: what is stored is read and written again."""
    policy = {"subscriptionPolicy": {"rate": 10_000}}
    at = f"{node.management}/topics/{topic}/subscriptions"
    must("GET", f"{node.management}/topics/{topic}")
    must("POST", at, subscription_body(topic, name, endpoint, **policy))
    must("PUT", f"{at}/{name}", {"description": f"changed by {node.name}"})


async def test_a_rolling_upgrade_under_load_loses_nothing_and_neither_does_the_way_back(
    previous, node_of, make_kafka_cluster
):
    servers = (await in_thread(make_kafka_cluster)).bootstrap_servers
    start = partial(node_of, HERMES_KAFKA_CLUSTERS_DC1_BOOTSTRAP_SERVERS=",".join(servers))
    one = await in_thread(start, "one", previous)
    two = await in_thread(start, "two", previous)
    account = Account({"up.first": ["a", "b"], "up.second": ["c", "d"]})
    account.begin("both old")
    subscribers = Subscribers(account)
    async with subscribers.open():

        def prepare(topic: str, makes: NodeProcess, *names: str) -> None:
            create(makes, topic)
            for node, name in zip((one, two), names, strict=True):
                subscribe(node, topic, name, subscribers.url + name)

        async def step(name: str, node: NodeProcess, source: Path | None) -> None:
            await in_thread(replace_by, node, source)
            account.begin(name)
            for each in (one, two):
                # Both versions publish and deliver, each what the other's management made.
                await in_thread(wait_until, partial(delivers, each), f"{each.name} delivers")
            await trio.sleep(STEP_S)
            assert await in_thread(unknown, one, two) == 0

        await in_thread(prepare, "up.first", one, "a", "b")
        await in_thread(replace_by, two, None)
        await in_thread(prepare, "up.second", two, "c", "d")
        async with publishing(account, [one.url, two.url], rate_per_s=RATE_PER_S):
            await step("both new", one, None)
            await step("old beside new", two, previous)
            await step("both old again", one, previous)
            await step("new beside old", one, None)
        with trio.move_on_after(WITHIN_S):
            while account.owed:  # noqa: ASYNC110 -- other processes tell no event
                await trio.sleep(0.1)
    for phase in account.phases:
        say(f"{phase.name}: acknowledged {phase.acknowledged}, {phase.deliveries} deliveries")
    say(f"not 201: {dict(account.refused)}; duplicates: {account.duplicates}")
    assert not account.owed
    assert account.wrong() == []
    assert account.refused.keys() <= {NO_ANSWER, NO_CONNECTION, "202", "503"}
    assert len(account.acknowledged) > 100


def delivers(node: NodeProcess) -> bool:
    return Scrape.of(node.url).sum(DELIVERED) > 0


def unknown(*nodes: NodeProcess) -> float:
    """How much in the metadata these nodes cannot decode."""
    scrape = Scrape.of(*(node.url for node in nodes))
    return sum(scrape.sum(name) for name in UNKNOWN)


class Taken:
    """Counts the messages that an endpoint has taken, by id."""

    def __init__(self) -> None:
        self.ids: Counter[str] = Counter()
        self.bodies: set[bytes] = set()
        self._lock = threading.Lock()

    def __call__(self, headers: dict[str, str], body: bytes) -> int:
        with self._lock:
            self.ids[headers["hermes-message-id"]] += 1
            self.bodies.add(body)
        return 200

    def wait(self, numbers: Sequence[int]) -> None:
        wanted = {b'{"number": %d}' % number for number in numbers}
        wait_until(lambda: self.bodies >= wanted, f"{len(wanted)} deliveries")


def publish(node: NodeProcess, numbers: Sequence[int]) -> set[int]:
    """Publish these; return the statuses."""
    return {ask("POST", f"{node.url}/topics/up.first", {"number": number})[0] for number in numbers}


def test_what_one_version_has_spooled_the_other_sends(previous, node_of, make_kafka_cluster):
    cluster = make_kafka_cluster()
    taken = Taken()
    with Endpoint(taken) as endpoint:
        node = node_of(
            "one",
            previous,
            HERMES_KAFKA_CLUSTERS_DC1_BOOTSTRAP_SERVERS=cluster.bootstrap_servers[0],
            HERMES_FRONTEND_IDLE_TIMEOUT_MS="1000",
            HERMES_FRONTEND_LONG_IDLE_TIMEOUT_MS="1000",
        )
        create(node, "up.first")
        subscribe(node, "up.first", "a", endpoint.url)
        wait_until(lambda: publish(node, [0]) == {201}, "a publish that is stored")
        taken.wait([0])
        for first, version in ((1, None), (4, previous)):
            numbers = range(first, first + 3)
            cluster.brokers[0].kill()
            assert publish(node, numbers) == {202}
            # Killed: a drain would wait for the log.
            node.kill()
            cluster.brokers[0].start()
            replace_by(node, version)
            taken.wait(numbers)


def test_one_version_opens_the_embedded_log_of_the_other_and_continues(previous, node_of):
    taken = Taken()
    with Endpoint(taken) as endpoint:
        node = node_of("one", previous)
        create(node, "up.first")
        subscribe(node, "up.first", "a", endpoint.url)
        for number, version in enumerate((None, previous, None)):
            wait_until(lambda at=number: publish(node, [at]) == {201}, "a publish that is stored")
            taken.wait([number])
            replace_by(node, version)
        assert publish(node, [3]) == {201}
        taken.wait([3])
        assert ask("GET", f"{node.management}/topics")[1] == ["up.first"]
    # A drained node has committed all that it delivered.
    assert set(taken.ids.values()) == {1}


def say(text: str) -> None:
    """For people: pytest -s shows it."""
    print(f"\n{text}", end="")  # noqa: T201
