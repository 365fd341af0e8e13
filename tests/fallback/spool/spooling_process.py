"""A process that offers messages to a spool until killed, and prints the number of each kept one.

Argument: the spool's folder. A line is a number, or `open` once it may be killed.
"""

import random
import sys
from pathlib import Path

import trio

from hermes_actors.actors.supervisor import open_supervisor
from hermes_actors.config.fallback import SpoolConfig
from hermes_actors.fallback.spool.format import SpoolEntry
from hermes_actors.fallback.spool.opening import open_segment_store
from hermes_actors.fallback.spool.spool import Spool
from hermes_actors.model.message import Message
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import SystemClock
from hermes_actors.telemetry.metrics import Metrics

CALLERS = 4


async def offer_for_ever(spool: Spool, clock: SystemClock, first: int) -> None:
    number = first
    while True:
        message = Message(str(number), b"x" * (number * 37 % 3_000), clock.now_ms(), b"k%d" % first)
        entry = SpoolEntry("t", "t", 0, Ack.LEADER, clock.now_ms(), message)
        kept = trio.Event()
        line = f"{number}\n"

        def done(error: Exception | None, kept: trio.Event = kept, line: str = line) -> None:
            assert error is None, error
            sys.stdout.write(line)
            sys.stdout.flush()
            kept.set()

        assert spool.offer([entry], done)
        await kept.wait()
        number += CALLERS


async def main(folder: str) -> None:
    clock = SystemClock()
    async with (
        open_segment_store(Path(folder), 64 * 50_000) as store,
        open_supervisor(random.Random(1)) as supervisor,
        trio.open_nursery() as nursery,
    ):
        spool = Spool(store, SpoolConfig(disk_bytes_max=10**9), clock, Metrics("hermes_frontend"))
        await spool.load()
        spool.start(supervisor)
        sys.stdout.write("open\n")
        sys.stdout.flush()
        for first in range(1, CALLERS + 1):
            nursery.start_soon(offer_for_ever, spool, clock, first)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
