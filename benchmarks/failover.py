"""How long subscriptions wait when their delivering node is lost, and what comes twice.

    python benchmarks/failover.py [--parts kill,leader,stop,freeze,broker,rolling,balance]
        [--subscriptions 30] [--topics 6] [--rate 180] [--consumers 3] [--kills 20]
        [--leaders 10] [--stops 6] [--still-s 20] [--rest-s 3] [--pause-s 0] [--after-s 15]
        [--set NAME=VALUE] [--json FILE]

A Kafka, a node that accepts messages, nodes that deliver (`hermes node` each) and the subscribers
are separate processes on loopback, and end with the run. The subscribers see who delivers what by
the connections of the pushes; the product is not asked.
"""

import argparse
import json
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from asking import machine, names_of, options
from delivering.sink import Sink
from failing_over import balance, freezing, losing, report, rolling
from failing_over.coordination import Witness
from failing_over.fleet import Fleet, open_fleet
from failing_over.trial import Load, Trial, in_thread
from hermes_actors.runtime import guest

PARTS = ("kill", "leader", "stop", "freeze", "broker", "rolling", "balance")


class Bench:
    """A run: its options, its subscribers, and the results so far."""

    def __init__(self, asked: argparse.Namespace, folder: Path, sink: Sink) -> None:
        self.asked = asked
        self.folder = folder
        self.sink = sink
        self.load = Load.even(asked.subscriptions, asked.topics, asked.rate)
        self.results: dict[str, Any] = {
            "options": options(asked),
            "machine": machine(),
        }

    async def measure(self) -> None:
        """Measure all requested parts; all except the last use one fleet."""
        asked = self.asked
        variables = dict(each.split("=", 1) for each in asked.set)
        parts = [part for part in asked.parts if part != "balance"]
        if parts:
            fleet = Fleet(
                self.folder / "fleet", self.sink, consumers=asked.consumers, variables=variables
            )
            async with open_fleet(fleet):
                await in_thread(fleet.create, self.load.topics)
                for part in parts:
                    await self._measured(part, partial(self._part, part, fleet))
        if "balance" in asked.parts:
            await self._measured("balance", partial(self._balance, variables))

    async def _measured(self, part: str, measure: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        self.results[part] = await measure()
        print("\n".join(report.part(part, self.results[part])), flush=True)

    async def _part(self, part: str, fleet: Fleet) -> dict[str, Any]:
        asked = self.asked
        witness = Witness(fleet.kafka.bootstrap_servers)
        trial = Trial(fleet, self.load, asked.rest_s)

        async def in_turn(number: int) -> int:
            return number % len(fleet.consumers)

        async def leading(_number: int) -> int:
            return fleet.index_of(await witness.leader())

        if part in ("kill", "leader"):
            choose, rounds = (in_turn, asked.kills) if part == "kill" else (leading, asked.leaders)
            return await losing.measure(
                trial, choose, rounds=rounds, is_graceful=False, within_s=asked.within_s
            )
        if part == "stop":
            return await losing.measure(
                trial, in_turn, rounds=asked.stops, is_graceful=True, within_s=asked.within_s
            )
        if part == "freeze":
            # Not the leader, whose loss is another part.
            index = (fleet.index_of(await witness.leader()) + 1) % len(fleet.consumers)
            return await freezing.freeze_node(trial, witness, index, asked.still_s)
        if part == "broker":
            return await freezing.freeze_broker(trial, witness, 0, asked.still_s)
        return await rolling.restart_all(trial, witness, asked.pause_s, asked.after_s)

    async def _balance(self, variables: dict[str, str]) -> dict[str, Any]:
        asked = self.asked
        return await balance.measure(
            self.folder / "balance",
            self.sink,
            balance.uneven(asked.uneven_subscriptions, asked.uneven_topics, asked.uneven_rate),
            variables,
            consumers=asked.consumers,
            settle_s=asked.settle_s,
            seconds=asked.seconds,
        )


def main() -> None:
    """Run the requested measurements."""
    asked = arguments()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hermes-bench-")))
        sink = stack.enter_context(Sink(0.0))
        bench = Bench(asked, asked.folder or folder, sink)
        guest.run(bench.measure)
    if asked.json:
        asked.json.write_text(json.dumps(bench.results, indent=2) + "\n")


def arguments() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--parts", type=names_of(PARTS), default=list(PARTS))
    add("--subscriptions", type=int, default=30)
    add("--topics", type=int, default=6, help="of 4 partitions each")
    add("--rate", type=float, default=180.0, help="messages/s of all topics together")
    add("--consumers", type=int, default=3, help="nodes that deliver")
    add("--kills", type=int, default=20, help="of the part kill, of each node in turn")
    add("--leaders", type=int, default=10, help="kills of the leader")
    add("--stops", type=int, default=6, help="graceful ones, of each node in turn")
    add("--within-s", type=float, default=30.0, help="after which a lane counts as lost")
    add("--still-s", type=float, default=20.0, help="for which a node, or the broker, stands still")
    add("--rest-s", type=float, default=3.0, help="of load alone, before each loss")
    add("--pause-s", type=float, default=0.0, help="between a node's return and the next stop")
    add("--after-s", type=float, default=15.0, help="for which moves count after the last restart")
    add("--uneven-subscriptions", type=int, default=60, help="of the part balance")
    add("--uneven-topics", type=int, default=10, help="the n-th has a n-th of the first one's rate")
    # A higher rate would fill two cores, and no node would have a core to lose half of.
    add("--uneven-rate", type=float, default=170.0, help="messages/s of all of them together")
    add("--settle-s", type=float, default=180.0, help="until the balance is looked at")
    add("--seconds", type=float, default=30.0, help="for which it is")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="HERMES_… of every node")
    add("--folder", type=Path, metavar="DIR", help="keep logs and data here")
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
