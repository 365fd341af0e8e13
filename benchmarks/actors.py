"""Measures messages inside a node: mailbox and supervisor compared with a bare trio memory channel.

    python benchmarks/actors.py [--rounds 3]

Prints operations a second on plain trio and on trio as guest of uvloop, the best of all rounds.
"""

import argparse
import random
from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter

import trio

from hermes_actors.actors.mailbox import Inbox, MailboxFull, Ref
from hermes_actors.actors.supervisor import open_supervisor
from hermes_actors.runtime import guest

COUNT = 40_000
CAPACITY = 1_000
BATCH_MAX = 1_000


class Echo:
    """Reads messages one by one."""

    def __init__(self) -> None:
        self.seen = 0

    async def run(self, inbox: Inbox[int]) -> None:
        """Count messages until the inbox ends."""
        async for _ in inbox:
            self.seen += 1


class BatchEcho(Echo):
    """Takes all waiting messages at once, as a topic's producer does."""

    async def run(self, inbox: Inbox[int]) -> None:
        """Count messages batch by batch until the inbox ends."""
        while await inbox.wait():
            self.seen += len(inbox.receive_nowait(BATCH_MAX))


async def tells(ref: Ref[int]) -> None:
    """Send without waiting; yield only if the mailbox is full."""
    for number in range(COUNT):
        try:
            ref.tell(number)
        except MailboxFull:
            while ref.statistics()[0]:
                await trio.lowlevel.checkpoint()
            ref.tell(number)


async def supervised(make: type[Echo], work: Callable[[Ref[int]], Awaitable[None]]) -> float:
    """Seconds from the first message to the end of the actor."""
    async with open_supervisor(random.Random(1)) as supervisor:
        actors: list[Echo] = []

        def start() -> Echo:
            actors.append(make())
            return actors[-1]

        ref: Ref[int] = supervisor.start("echo", start, mailbox_capacity=CAPACITY)
        begin = perf_counter()
        await work(ref)
        await supervisor.stop("echo")
        taken = perf_counter() - begin
        assert [actor.seen for actor in actors] == [COUNT]
    return taken


async def channel() -> float:
    """The baseline: trio's memory channel, same capacity, one sender, one reader."""
    sender, receiver = trio.open_memory_channel[int](CAPACITY)

    async def write() -> None:
        async with sender:
            for number in range(COUNT):
                await sender.send(number)

    begin = perf_counter()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        seen = 0
        async for _ in receiver:
            seen += 1
    assert seen == COUNT
    return perf_counter() - begin


async def measure(rounds: int) -> dict[str, float]:
    """Operations a second for each kind, the best of all rounds."""
    kinds: dict[str, Callable[[], Awaitable[float]]] = {
        "trio memory channel, send": channel,
        "tell, read one by one": lambda: supervised(Echo, tells),
        "tell, read in batches": lambda: supervised(BatchEcho, tells),
    }
    best = dict.fromkeys(kinds, float("inf"))
    for _ in range(rounds):
        for name, run in kinds.items():
            best[name] = min(best[name], await run())
    return {name: COUNT / seconds for name, seconds in best.items()}


def main() -> None:
    """Read the options and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    run = partial(measure, parser.parse_args().rounds)
    plain, hosted = trio.run(run), guest.run(run, host="uvloop")
    print(f"{'operations a second':<28}{'trio':>12}{'guest':>12}")
    for name, rate in plain.items():
        print(f"{name:<28}{rate:>12,.0f}{hosted[name]:>12,.0f}")


if __name__ == "__main__":
    main()
