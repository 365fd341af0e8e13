"""Keeping messages on disk until a log takes them: our segments compared with SQLite, in the same
run.

Each store writes the same entries (1 KiB bodies by default) in groups of 1, 32 and 256, each group
durable before the next begins, from its own thread, as a node does. Rounds alternate; the table has
medians. "bare" is one write and one fdatasync of the same bytes, without a format. At the end: the
memory of a waiting entry, and the cost of loading and reading back.

    python benchmarks/spool.py
    python benchmarks/spool.py --directory /mnt/disk
"""

import argparse
import os
import resource
import sqlite3
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import trio

from hermes_actors.fallback.spool.format import SpoolEntry, encode_entry
from hermes_actors.fallback.spool.index import SpoolIndex
from hermes_actors.fallback.spool.opening import open_segment_store
from hermes_actors.model.message import Message
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import IdSource

GROUPS = (1, 32, 256)
Append = Callable[[list[bytes]], Awaitable[object]]


def payloads(count: int, size_bytes: int) -> list[bytes]:
    """Encoded entries, each with a key."""
    ids = IdSource()
    return [
        encode_entry(
            SpoolEntry(
                "shop.orders", "shop.orders", 0, Ack.LEADER, 1_700_000_000_000,
                Message(ids.message_id(), b"x" * size_bytes, 1_700_000_000_000, b"%d" % number),
            )
        )
        for number in range(count)
    ]  # fmt: skip


async def open_bare(stack: AsyncExitStack, folder: Path) -> Append:
    """One write and one fdatasync."""
    file = os.open(folder / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    stack.callback(os.close, file)

    def write(content: bytes) -> None:
        os.write(file, content)
        os.fdatasync(file)

    async def append(group: list[bytes]) -> None:
        await trio.to_thread.run_sync(write, b"".join(group))

    return append


async def open_segments(stack: AsyncExitStack, folder: Path) -> Append:
    """The product's store."""
    store = await stack.enter_async_context(open_segment_store(folder / "segments", 2**40))
    await store.load()
    return store.append


async def open_sqlite(stack: AsyncExitStack, folder: Path) -> Append:
    """A table in WAL mode, durable at each commit."""
    connection = sqlite3.connect(
        folder / "spool.sqlite", isolation_level=None, check_same_thread=False
    )
    stack.callback(connection.close)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE entry (sequence INTEGER PRIMARY KEY, content BLOB NOT NULL)")

    def write(group: list[bytes]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO entry (content) VALUES (?)", [(e,) for e in group])
        connection.execute("COMMIT")

    async def append(group: list[bytes]) -> None:
        await trio.to_thread.run_sync(partial(write, group))

    return append


STORES = {"bare": open_bare, "segments": open_segments, "sqlite": open_sqlite}


def cpu_s() -> float:
    """CPU time of this process, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(append: Append, entries: list[bytes], group: int, seconds: float) -> list[float]:
    """Groups a second, entries a second, p50 and p99 in ms, CPU in µs per entry."""
    took_s: list[float] = []
    begin_s, cpu_begin_s = time.perf_counter(), cpu_s()
    now_s = begin_s
    at = 0
    while now_s - begin_s < seconds:
        if at + group > len(entries):
            at = 0
        await append(entries[at : at + group])
        at += group
        then_s, now_s = now_s, time.perf_counter()
        took_s.append(now_s - then_s)
    cpu = cpu_s() - cpu_begin_s
    total_s = now_s - begin_s
    took_s.sort()
    count = len(took_s)
    return [
        count / total_s,
        count * group / total_s,
        took_s[count // 2] * 1_000,
        took_s[min(int(count * 0.99), count - 1)] * 1_000,
        cpu / (count * group) * 1_000_000,
    ]


async def compare(options: argparse.Namespace) -> None:
    """Measure all stores in turn, print the medians."""
    entries = payloads(1_024, options.bytes)
    figures: dict[tuple[str, int], list[list[float]]] = {}
    for _round in range(options.rounds):
        for name, open_store in STORES.items():
            for group in GROUPS:
                with tempfile.TemporaryDirectory(dir=options.directory) as folder:
                    async with AsyncExitStack() as stack:
                        append = await open_store(stack, Path(folder))
                        row = await measure(append, entries, group, options.seconds)
                figures.setdefault((name, group), []).append(row)
    print(
        f"{'store':10} {'group':>5} {'fsyncs/s':>9} {'entries/s':>10} {'p50 ms':>7} {'p99 ms':>7} "
        f"{'CPU µs/entry':>12}"
    )
    for (name, group), rows in sorted(figures.items(), key=lambda item: item[0][1]):
        fsyncs, rate, p50, p99, cpu = (
            statistics.median(column) for column in zip(*rows, strict=True)
        )
        print(f"{name:10} {group:5} {fsyncs:9.0f} {rate:10.0f} {p50:7.2f} {p99:7.2f} {cpu:12.1f}")


async def load(options: argparse.Namespace) -> None:
    """Measure how a new process loads a spool, and reads it back for the replay."""
    count = options.entries
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        opened = partial(open_segment_store, Path(folder) / "s", 2**40)
        async with opened() as store:
            await store.load()
            entries = payloads(count, options.bytes)
            for at in range(0, count, 1_000):
                await store.append(entries[at : at + 1_000])
            del entries
        async with opened() as store:
            begin_s = time.perf_counter()
            found, _damaged = await store.load()
            load_s = time.perf_counter() - begin_s
            begin_s = time.perf_counter()
            for at in range(0, count, 1_000):
                await store.read([place for place, _entry in found[at : at + 1_000]])
            read_s = time.perf_counter() - begin_s
            tracemalloc.start()
            index = SpoolIndex()
            for place, each in found:
                index.written(index.reserve(each, each.spooled_at_ms / 1_000), place)
            used, _peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
    print(
        f"{count} waiting entries: loaded in {load_s / count * 1e6:.1f} µs each, read back in "
        f"{read_s / count * 1e6:.1f} µs each, {used / count + 64:.0f} bytes of memory each"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--bytes", type=int, default=1_024)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    trio.run(compare, options)
    trio.run(load, options)


if __name__ == "__main__":
    main()
