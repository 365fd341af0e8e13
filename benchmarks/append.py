"""Measures appends through EmbeddedLog compared with plain SQLite: same disk, run and batches.

Plain SQLite is the minimum with the same durability: one row for each record, `executemany` and one
commit with synchronous=FULL for each batch, on the calling thread.

    python benchmarks/append.py [--directory .] [--rounds 4]

The directory chooses the disk.
"""

import argparse
import os
import sqlite3
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path

import trio

from hermes_actors.log.base import Stored, TopicSettings
from hermes_actors.log.embedded.log import EmbeddedLog, open_embedded_log
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import SystemClock

BATCHES = (1, 32, 256, 1_000)
VALUE_BYTES = 1_024
ROUND_S = 0.7
"""The two alternate at this interval, so that changes of the disk's speed affect both."""


def plain_sqlite(path: Path) -> sqlite3.Connection:
    """A table of records, durable at each commit."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(
        "CREATE TABLE record (offset INTEGER PRIMARY KEY, timestamp_ms INTEGER, key BLOB,"
        " value BLOB, headers BLOB)"
    )
    return connection


def measure_plain(connection: sqlite3.Connection, batch: list[Record]) -> list[float]:
    """The seconds of each batch in one round."""
    durations_s = []
    until_s = time.perf_counter() + ROUND_S
    while (started_s := time.perf_counter()) < until_s:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO record (timestamp_ms, key, value, headers) VALUES (?, ?, ?, ?)",
            [(r.timestamp_ms, r.key, r.value, b"") for r in batch],
        )
        connection.execute("COMMIT")
        durations_s.append(time.perf_counter() - started_s)
    return durations_s


async def measure_log(log: EmbeddedLog, batch: list[Record]) -> list[float]:
    """The seconds of each append in one round, one in flight."""
    durations_s = []
    until_s = time.perf_counter() + ROUND_S
    while (started_s := time.perf_counter()) < until_s:
        outcomes = await log.append("bench", 0, batch, Ack.ALL)
        assert type(outcomes[-1]) is Stored, outcomes[-1]
        durations_s.append(time.perf_counter() - started_s)
    return durations_s


async def measure(directory: Path, rounds: int) -> None:
    """Print one row for each batch size."""
    print(f"{'batch':>6} {'who':<13} {'rows/s':>9} {'p50 ms':>8} {'p99 ms':>8} {'ratio':>6}")
    with closing(plain_sqlite(directory / "plain.sqlite")) as connection:
        async with open_embedded_log(directory / "log", "dc1", SystemClock()) as log:
            await log.topics.create("bench", TopicSettings())
            for size in BATCHES:
                batch = [Record(None, os.urandom(VALUE_BYTES), (), 1) for _ in range(size)]
                plain: list[float] = []
                ours: list[float] = []
                for _ in range(rounds):
                    plain += measure_plain(connection, batch)
                    ours += await measure_log(log, batch)
                rate = show(size, "sqlite", plain)
                show(size, "EmbeddedLog", ours, rate)


def show(size: int, who: str, durations_s: list[float], other: float | None = None) -> float:
    """Print one line, with the ratio to the other's rows/s. Return its own rows/s."""
    rate = size * len(durations_s) / sum(durations_s)
    cuts_s = statistics.quantiles(durations_s, n=100, method="inclusive")
    p50_ms, p99_ms = cuts_s[49] * 1e3, cuts_s[98] * 1e3
    ratio = f"{rate / other:.2f}" if other else ""
    print(f"{size:>6} {who:<13} {rate:>9.0f} {p50_ms:>8.3f} {p99_ms:>8.3f} {ratio:>6}")
    return rate


def main() -> None:
    """Read the options and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", default=".")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="append-", dir=options.directory) as scratch:
        trio.run(measure, Path(scratch), options.rounds)


if __name__ == "__main__":
    main()
