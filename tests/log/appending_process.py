"""A process that appends to a log until killed, and prints each acknowledged offset.

Argument: the log's directory. A line is `partition offset value`, or `open` once it may be killed.
"""

import sys

import trio

from hermes_actors.log.base import Stored, TopicSettings
from hermes_actors.log.embedded.log import EmbeddedLog, open_embedded_log
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import SystemClock

PARTITIONS = 3


async def append_for_ever(log: EmbeddedLog, partition: int) -> None:
    number = 0
    while True:
        values = [b"%d.%d.%d" % (partition, number, n) for n in range(1 + number % 7)]
        outcomes = await log.append(
            "t", partition, [Record(None, value, (), 1) for value in values], Ack.ALL
        )
        lines = []
        for value, outcome in zip(values, outcomes, strict=True):
            assert isinstance(outcome, Stored), outcome
            lines.append(f"{partition} {outcome.offset} {value.decode()}\n")
        sys.stdout.write("".join(lines))
        sys.stdout.flush()
        number += 1


async def main(directory: str) -> None:
    async with open_embedded_log(directory, "dc1", SystemClock()) as log:
        await log.topics.create("t", TopicSettings(partitions=PARTITIONS))
        sys.stdout.write("open\n")
        sys.stdout.flush()
        async with trio.open_nursery() as nursery:
            for partition in range(PARTITIONS):
                nursery.start_soon(append_for_ever, log, partition)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
