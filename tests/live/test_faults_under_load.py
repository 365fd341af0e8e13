"""The whole topology under load while its parts die: nothing that was acknowledged gets lost.

The services of deploy/compose.yaml, publishers at all frontends of both datacentres, two
subscribers for each topic, one topic for each ack level. Run with -s to see the figures.
"""

import os
import statistics
from collections.abc import Callable
from functools import partial

import pytest
import trio

from hermes_actors.cli.publishing.publisher import percentile
from hermes_chaos.live.load import Account, Phase, Subscribers, publishing
from hermes_chaos.live.logs import until
from hermes_chaos.wanted import subscription_body, topic_body
from hermes_local.compose import Topology
from hermes_local.lifecycle import Service

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.soak,
    pytest.mark.timeout(600),
]

RATE_PER_S = 200.0
CALM_S = 1.0
WITHIN_S = 60.0
DELIVERED_WITHIN_S = 120.0
DOWN_S = (0.0, 1.0, 7.0)
"""How long a datacentre is lost: noticed by nobody, by the probes, by all that time out."""
REPETITIONS = int(os.environ.get("REPETITIONS", "1"))
# Bounds for a machine that is busy with other things; usual are tenths of them.
ANSWERED_WITHIN_S = 3.0
CONVERGED_WITHIN_S = 20.0

run = trio.to_thread.run_sync


def say(text: str) -> None:
    """For people: pytest -s shows it."""
    print(f"\n{text}", end="")  # noqa: T201


class Trial:
    """One run on the topology: its load's account, and the faults so far."""

    def __init__(self, topology: Topology, http, account: Account) -> None:
        self.topology = topology
        self.http = http
        self.account = account
        self.faults = 0
        self.recoveries_s: dict[str, float] = {}

    def service(self, name: str) -> Service:
        return self.topology.services[name]

    def management(self, dc: str) -> str:
        return self.service(f"management-{dc}").url(8090)

    @property
    def frontends(self) -> list[str]:
        services = self.topology.services
        return [each.url(8080) for name, each in services.items() if name.startswith("frontend")]

    async def ask(self, method: str, url: str, body=None):
        return await run(self.http, method, url, body)

    async def wait_publishing(self) -> float:
        """Until each frontend has acknowledged something new of each topic; the seconds."""
        latest_s, since_s = self.account.latest_s, trio.current_time()

        def behind() -> list[tuple[str, str]]:
            return [
                (frontend, topic)
                for frontend in self.frontends
                for topic in self.account.subscribers
                if latest_s.get((frontend, topic), -1.0) <= since_s
            ]

        with trio.move_on_after(WITHIN_S):
            await until(lambda: not behind())
        assert behind() == [], f"no 201 within {WITHIN_S:.0f} s of the heal"
        return trio.current_time() - since_s

    async def fault(self, name: str, *steps: Callable[[], None] | float) -> None:
        """Do the steps (a number: wait so many seconds), then wait until all are published to."""
        self.account.begin(name)
        self.faults += 1
        for step in steps:
            if isinstance(step, float):
                await trio.sleep(step)
            else:
                await run(step)
        self.recoveries_s[name] = await self.wait_publishing()
        await trio.sleep(CALM_S)

    def report(self, load_s: float, settled_s: float) -> str:
        account = self.account
        lines = [self._line(phase) for phase in account.phases]
        lines.append(
            f"faults under load: {len(account.acknowledged)} messages acknowledged in "
            f"{load_s:.0f} s, {self.faults} faults, {account.deliveries} deliveries to "
            f"{len(account.taken)} subscribers, {account.duplicates} duplicates, "
            f"{account.unconfirmed} delivered without acknowledgement, "
            f"not 201: {dict(account.refused)}, all delivered {settled_s:.1f} s after the load, "
            f"missing {len(account.owed)}"
        )
        return "\n".join(lines)

    def _line(self, phase: Phase) -> str:
        latencies_ms = sorted(phase.latencies_ms)
        p50, p99 = (percentile(latencies_ms, each) for each in (50, 99))
        again_s = self.recoveries_s.get(phase.name)
        return (
            f"{phase.name:28} 201: {phase.acknowledged:5} (p50 {p50:5.1f} ms, p99 {p99:6.1f} ms)  "
            f"deliveries: {phase.deliveries:5}  duplicates: {phase.duplicates:4}"
            + (f" ({phase.retried} pushes retried)" if phase.retried else "")
            + ("" if again_s is None else f"  all frontends again after {again_s:.2f} s")
            + (f"  not 201: {dict(phase.refused)}" if phase.refused else "")
        )


async def create(trial: Trial, url: str) -> None:
    """The topics of the account with their subscriptions, at dc1; both datacentres show them."""
    base = trial.management("dc1")
    groups = {topic.partition(".")[0] for topic in trial.account.subscribers}
    bodies = [(f"{base}/groups", {"groupName": group}) for group in groups]
    for topic, subscribers in trial.account.subscribers.items():
        body = topic_body(topic, ack=topic.partition(".")[2].upper())
        bodies.append((f"{base}/topics", body))
        for subscriber in subscribers:
            body = subscription_body(
                topic,
                subscriber.partition("$")[2],
                url + subscriber,
                # A machine that is busy for a second is no fault: duplicates are to come of faults.
                subscriptionPolicy={"rate": 10_000, "requestTimeout": 10_000},
            )
            bodies.append((f"{base}/topics/{topic}/subscriptions", body))
    for at, body in bodies:
        status, said = await trial.ask("POST", at, body)
        assert status == 201, said


def healthy(service: Service) -> None:
    """Wait for it, asking seldom: each look is a process, and the machine has others to run."""
    for _ in range(int(WITHIN_S / 0.25)):
        if not service.health():
            return
        assert service.is_running, service.last_words()
        service.process.wait_ended(0.25)
    raise AssertionError(f"{service.name}: {service.health()}\n{service.last_words()}")


def stopped_in_time(service: Service) -> None:
    assert service.stop(), service.last_words()


def killed(service: Service, down_s: float = 1.0) -> list[Callable[[], None] | float]:
    return [service.kill, down_s, service.start, partial(healthy, service)]


def restarted(service: Service) -> list[Callable[[], None] | float]:
    return [partial(stopped_in_time, service), service.start, partial(healthy, service)]


def paused(service: Service, for_s: float) -> list[Callable[[], None] | float]:
    return [service.pause, for_s, service.resume]


def heal(topology: Topology) -> None:
    """Whatever a fault left behind, so that the next test of the module finds all at work."""
    for service in topology.services.values():
        service.resume()
        if not service.is_running:
            service.start()
    for service in topology.services.values():
        healthy(service)


async def test_no_acknowledged_message_is_missing_whatever_dies_under_load(topology, http):
    account = Account(
        {
            topic: [f"{topic}${name}" for name in ("first", "second")]
            for topic in ("faults.all", "faults.leader")
        }
    )
    trial = Trial(topology, http, account)
    service = trial.service
    account.begin("start")
    subscribers = Subscribers(account)
    try:
        async with subscribers.open():
            await create(trial, subscribers.url)
            async with publishing(account, trial.frontends, rate_per_s=RATE_PER_S):
                await trial.wait_publishing()
                began_s = trio.current_time()
                account.begin("calm")
                await trio.sleep(CALM_S)
                await trial.fault("kill Kafka of dc1", *killed(service("kafka-dc1"), 2.0))
                await trial.fault("kill a frontend", *killed(service("frontend-dc1-1")))
                await trial.fault("kill a consumers node", *killed(service("consumers-dc1-1"), 2.0))
                await trial.fault("kill management", *killed(service("management-dc1")))
                await trial.fault("stop Kafka of dc2 for 5 s", *paused(service("kafka-dc2"), 5.0))
                await trial.fault("restart a frontend", *restarted(service("frontend-dc2-1")))
                await trial.fault(
                    "restart a consumers node", *restarted(service("consumers-dc2-2"))
                )
                await trial.fault("restart Kafka of dc2", *restarted(service("kafka-dc2")))
                load_s = trio.current_time() - began_s
            account.begin("after the load")
            ended_s = trio.current_time()
            with trio.move_on_after(DELIVERED_WITHIN_S):
                await until(lambda: not account.owed)
            say(trial.report(load_s, trio.current_time() - ended_s))
    finally:
        with trio.CancelScope(shield=True):
            await run(heal, topology)
    missing = list(account.owed.items())
    # The logs of all services lie in topology.folder and are kept.
    assert missing == [], (len(missing), missing[:20], topology.folder)
    assert account.wrong() == []
    assert len(account.acknowledged) > 1_000


async def test_a_management_write_during_the_loss_of_a_datacentre_is_answered_and_converges(
    topology, http
):
    trial = Trial(topology, http, Account({}))
    base, other = trial.management("dc1"), trial.management("dc2")
    kafka = trial.service("kafka-dc2")
    assert (await trial.ask("POST", f"{base}/groups", {"groupName": "lost"}))[0] == 201
    topic = topic_body("lost.kept")
    assert (await trial.ask("POST", f"{base}/topics", topic))[0] == 201
    await until_shown(trial, other, "lost.kept", "")
    answered_s: list[float] = []
    converged_s: dict[str, list[float]] = {"stopped": [], "killed": []}

    async def write(number: str) -> None:
        """One change and one new topic; both are asked for at the other side after the heal."""
        requests = (
            ("PUT", f"{base}/topics/lost.kept", {"description": number}),
            ("POST", f"{base}/topics", {**topic, "name": f"lost.t{number}", "description": number}),
        )
        for method, url, body in requests:
            began_s = trio.current_time()
            status, said = await trial.ask(method, url, body)
            answered_s.append(trio.current_time() - began_s)
            assert status in (200, 201), said

    try:
        for repetition, down_s in enumerate(DOWN_S * REPETITIONS):
            for how in converged_s:
                number = f"{how}{repetition}"
                await run(kafka.pause if how == "stopped" else kafka.kill)
                await write(f"{number}a")
                await trio.sleep(down_s)
                await write(f"{number}b")
                if how == "stopped":
                    await run(kafka.resume)
                else:
                    await run(kafka.start)
                    await run(healthy, kafka)
                healed_s = trio.current_time()
                for each in (base, other):
                    for name in ("kept", f"t{number}b", f"t{number}a"):
                        expected = f"{number}{name[-1] if name != 'kept' else 'b'}"
                        await until_shown(trial, each, f"lost.{name}", expected)
                converged_s[how].append(trio.current_time() - healed_s)
    finally:
        with trio.CancelScope(shield=True):
            await run(heal, topology)
    say(
        f"management writes without the other datacentre: {len(answered_s)} answered, "
        f"p50 {statistics.median(answered_s) * 1e3:.1f} ms, max {max(answered_s) * 1e3:.1f} ms"
    )
    for how, found in converged_s.items():
        say(
            f"in both datacentres after the heal, Kafka {how}: {len(found)} times, "
            f"p50 {statistics.median(found):.2f} s, max {max(found):.2f} s"
        )
    assert max(answered_s) < ANSWERED_WITHIN_S
    assert max(converged_s["stopped"] + converged_s["killed"]) < CONVERGED_WITHIN_S


async def until_shown(trial: Trial, base: str, topic: str, description: str) -> None:
    """Until that management shows the topic with that description."""
    said = None
    with trio.move_on_after(WITHIN_S):
        while True:
            said = await trial.ask("GET", f"{base}/topics/{topic}")
            if said[0] == 200 and said[1]["description"] == description:
                return
            await trio.sleep(0.02)
    raise AssertionError(f"{base} shows {said} for {topic}")
