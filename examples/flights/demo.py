"""Two datacentres, 12,208 flights, three subscribers, and two proofs that nothing is missing."""

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
import trio
from rich.console import Console

HERE = Path(__file__).resolve().parent
# So that it runs both as a script and as a module.
sys.path.insert(0, str(HERE.parents[1]))

from examples.flights.cluster import (  # noqa: E402
    DEV,
    Child,
    DidNotStart,
    start_cluster,
    start_sinks,
    start_topology,
)
from examples.flights.deliveries import DeliveryFile  # noqa: E402
from examples.flights.losing import (  # noqa: E402
    lose_while_publishing,
    show_loss,
    victim_of,
)
from examples.flights.publishing import (  # noqa: E402
    Datacentre,
    datacentres_of,
    progress,
    publish_all,
)
from examples.flights.reconciling import reconcile  # noqa: E402
from examples.flights.tables import show  # noqa: E402
from examples.flights.verify import rows  # noqa: E402
from hermes_actors.cli.publishing.publisher import PublishResult, Unreachable  # noqa: E402
from hermes_actors.runtime import guest  # noqa: E402
from hermes_actors.runtime.clock import SystemClock  # noqa: E402

FLIGHTS = HERE / "flights-2013-01.ndjson.gz"
LOST_PART = 6
"""One row in this many is published while a node is lost."""
GROUP, TOPIC = "flights", "flights.departures"
RATE = 10_000
RATE_DEFAULT = 300
"""Rows a second: about half of what two cores can do that run everything, including both Kafkas."""
SHOWN_WITHIN_S = 30.0
SETTLED_WITHIN_S = 180.0
SILENCE_MAX_S = 15.0
NETWORK_DEFAULT = "127.0.3.0/24"
REPORT_DEFAULT = HERE.parents[1] / "build" / "flights-report"

console = Console()


class DemoFailed(Exception):
    """The demonstration cannot go on; the message says why."""


def main() -> int:
    """Run everything. Return 0 if nothing is missing. All started processes are ended
    in any case.
    """
    options = arguments()
    # SIGTERM ends it like Ctrl-C, through the `finally` below.
    signal.signal(signal.SIGTERM, _interrupt)
    # A shell starts background processes with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="hermes-flights-"))
    children: list[Child] = []
    try:
        return demonstrate(options, directory, children)
    except (DidNotStart, DemoFailed) as failure:
        print(f"demo: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BaseExceptionGroup as group:
        # trio wraps Ctrl-C if it arrives inside a nursery.
        if group.split(KeyboardInterrupt)[1] is not None:
            raise
        return 130
    finally:
        # From here on nothing may prevent the children from being ended.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for child in reversed(children):
            child.end()
        shutil.rmtree(directory, ignore_errors=True)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="stay up afterwards, with URLs to try")
    parser.add_argument(
        "--compose",
        type=Path,
        metavar="FILE",
        help="run the services of this compose file as processes, on Kafka; else: hermes dev",
    )
    parser.add_argument(
        "--network",
        default=NETWORK_DEFAULT,
        metavar="CIDR",
        help="with --compose: one address of it for each service (%(default)s)",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="publish only the first N rows")
    parser.add_argument(
        "--rate",
        type=float,
        default=RATE_DEFAULT,
        metavar="N",
        help="rows published in a second (%(default)s); 0: as fast as they are answered",
    )
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FOLDER",
        default=REPORT_DEFAULT,
        help="where Spark's reconciliation is written (build/flights-report)",
    )
    parser.add_argument(
        "--plain", action="store_true", help="without Spark: only the plain check at the end"
    )
    options = parser.parse_args()
    if options.limit is not None and options.limit < 1:
        parser.error("--limit: expected 1 or more")
    if options.rate < 0:
        parser.error("--rate: expected 0 or more")
    return options


def _interrupt(*_: object) -> None:
    # Through SIGINT, which trio defers until it can be raised safely.
    signal.raise_signal(signal.SIGINT)


def demonstrate(
    options: argparse.Namespace,
    directory: Path,
    children: list[Child],
    dev: tuple[str, ...] = DEV,
) -> int:
    """Set up, publish, wait, show, verify. `dev` is the command that runs the datacentres."""
    sinks = start_sinks(directory)
    children.append(sinks)
    if options.compose is None:
        cluster = start_cluster(dev, directory)
    else:
        console.print(f"starting the services of {options.compose}: two Kafkas and all nodes …")
        cluster = start_topology(options.compose, options.network, directory)
    children.append(cluster)
    files = [DeliveryFile(each["name"], Path(each["file"])) for each in sinks.ready["sinks"]]
    dcs = datacentres_of(cluster.ready)
    if len(dcs) < 2:
        raise DemoFailed(f"expected two datacentres, {cluster.name} runs {len(dcs)}")
    create_everything(dcs, sinks.ready["sinks"])

    flights = list(rows(FLIGHTS, options.limit))
    victim = victim_of(cluster.ready, cluster.process.pid)
    # The last messages are published while a node is lost.
    calm = len(flights) - (len(flights) // LOST_PART if victim is not None else 0)
    try:
        outcomes, seconds = guest.run(
            publish_all, flights[:calm], dcs, TOPIC, console, options.rate
        )
        wait_until_settled(files, ids_of(outcomes), cluster)
        stored = {dc.name: count_stored(dc.management) for dc in dcs}
        show(console, outcomes, seconds, options.rate, stored, files, len(flights) - calm)
        if victim is not None:
            loss = lose_while_publishing(flights[calm:], dcs, TOPIC, console, options.rate, victim)
            outcomes += loss.outcomes
            wait_until_settled(files, ids_of(outcomes), cluster)
            show_loss(console, dcs[0].name, loss, files)
    except Unreachable as error:
        raise DemoFailed(f"cannot publish: {error}\n{cluster.last_words()}") from error
    refused = [each for each in outcomes if not each.is_accepted]
    if refused:
        console.print(f"not accepted: {len(refused)}, the first: {refused[0]}")
    if options.keep:
        verify(options.limit, files)
        keep(dcs, sinks.ready["sinks"])
        return 0
    is_whole = options.plain or reconcile(dcs, TOPIC, outcomes, options.report, console)
    # End them first: a sink's file is complete only when its process has ended.
    cluster.end()
    sinks.end()
    return max(verify(options.limit, files), 0 if is_whole else 1)


def ids_of(outcomes: list[PublishResult]) -> set[str]:
    """The ids of the accepted messages."""
    return {each.message_id for each in outcomes if each.is_accepted}


def create_everything(dcs: list[Datacentre], sinks: list[dict[str, str]]) -> None:
    """Create group, topic and subscriptions at the first datacentre; wait until the second shows
    them as active.
    """
    owner = {"source": "Plaintext", "id": "flights-demo"}
    first, second = dcs[0].management, dcs[1].management
    with httpx.Client(timeout=30.0, trust_env=False) as client:
        post(client, f"{first}/groups", {"groupName": GROUP})
        topic = {
            "name": TOPIC,
            "description": "Departures from New York, January 2013",
            "owner": owner,
            "contentType": "JSON",
            "retentionTime": {"duration": 1, "retentionUnit": "DAYS"},
        }
        post(client, f"{first}/topics", topic)
        for sink in sinks:
            subscription = {
                "topicName": TOPIC,
                "name": sink["name"],
                "endpoint": sink["url"],
                "description": f"Subscriber {sink['name']} of the demonstration",
                "owner": owner,
                # Broker, sinks and publisher share one machine. A busy second is not a failure, and
                # a time-out would only send the same message twice.
                "subscriptionPolicy": {"rate": RATE, "requestTimeout": 10_000},
            }
            post(client, f"{first}/topics/{TOPIC}/subscriptions", subscription)
        for management in (first, second):
            for sink in sinks:
                wait_until_active(client, management, sink["name"])


def post(client: httpx.Client, url: str, body: dict[str, Any]) -> None:
    """Create one thing. Raises DemoFailed with the server's answer."""
    try:
        answer = client.post(url, json=body)
    except httpx.HTTPError as error:
        raise DemoFailed(f"POST {url}: {error!r}") from error
    if not answer.is_success:
        raise DemoFailed(f"POST {url}: {answer.status_code} {answer.text}")


def wait_until_active(client: httpx.Client, management: str, name: str) -> None:
    """Wait until this datacentre shows the subscription as ACTIVE. Raises DemoFailed."""
    url = f"{management}/topics/{TOPIC}/subscriptions/{name}/state"
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + SHOWN_WITHIN_S
    seen = "nothing"
    while clock.monotonic_s() < deadline_s:
        try:
            answer = client.get(url)
        except httpx.HTTPError as error:
            raise DemoFailed(f"GET {url}: {error!r}") from error
        seen = f"{answer.status_code} {answer.text}"
        if answer.is_success and answer.json() == "ACTIVE":
            return
        trio.run(trio.sleep, 0.05)
    raise DemoFailed(f"{url} is not ACTIVE after {SHOWN_WITHIN_S:.0f} s: {seen}")


def wait_until_settled(files: list[DeliveryFile], expected: set[str], cluster: Child) -> None:
    """Wait until each subscriber has accepted each message, or there is no more progress."""
    clock = SystemClock()
    began_s = moved_s = clock.monotonic_s()
    before = -1
    with progress(console) as bars:
        bar_of = {
            each.name: bars.add_task(f"deliver to {each.name}", total=len(expected))
            for each in files
        }
        while True:
            for each in files:
                each.read_on()
                bars.update(bar_of[each.name], completed=each.delivered)
            now_s = clock.monotonic_s()
            delivered = sum(each.delivered for each in files)
            if delivered > before:
                before, moved_s = delivered, now_s
            if all(expected <= each.first_accepted_ms.keys() for each in files):
                return
            if cluster.process.poll() is not None:
                raise DemoFailed(f"{cluster.name} ended:\n{cluster.last_words()}")
            if now_s - moved_s > SILENCE_MAX_S or now_s - began_s > SETTLED_WITHIN_S:
                console.print("not settled in time; what is missing is shown below")
                return
            trio.run(trio.sleep, 0.1)


def count_stored(management: str) -> int | None:
    """The number of the topic's records in this datacentre's log; None if it cannot be read."""
    url = f"{management}/topics/{TOPIC}/messages"
    params = {"from": "beginning", "follow": "false"}
    try:
        with httpx.stream("GET", url, params=params, timeout=20.0, trust_env=False) as answer:
            if not answer.is_success:
                return None
            return sum(chunk.count(b"\n") for chunk in answer.iter_bytes())
    except httpx.HTTPError:
        return None


def verify(limit: int | None, files: list[DeliveryFile]) -> int:
    """Run the independent verifier; return its exit code."""
    command = [sys.executable, str(HERE / "verify.py"), str(FLIGHTS)]
    command += [str(each.path) for each in files]
    if limit is not None:
        command += ["--limit", str(limit)]
    sys.stdout.flush()
    return subprocess.run(command, check=False).returncode


def keep(dcs: list[Datacentre], sinks: list[dict[str, str]]) -> None:
    """Print what to try, then wait for Ctrl-C."""
    for dc in dcs:
        print(f"{dc.name}: publish {' '.join(dc.frontends)}  management {dc.management}")
    for sink in sinks:
        print(f"subscriber {sink['name']}: {sink['url']}  writes {sink['file']}")
    publish, management = dcs[0].frontends[0], dcs[0].management
    print(
        "try:\n"
        f'  curl -i -d \'{{"origin":"EWR"}}\' {publish}/topics/{TOPIC}\n'
        f"  curl {management}/topics/{TOPIC}\n"
        f"  curl {management}/topics/{TOPIC}/subscriptions/A\n"
        f"  curl '{management}/topics/{TOPIC}/messages?from=beginning&limit=3'\n"
        f"  curl {publish}/status/prometheus\n"
        f"  hermes tail {TOPIC} --management {management}\n"
        "Ctrl-C ends it all and removes its data",
        flush=True,
    )
    signal.pause()


if __name__ == "__main__":
    sys.exit(main())
