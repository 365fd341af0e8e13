# mypy: allow-untyped-defs, allow-untyped-calls
"""The worker pool: real processes, ended in time, and owners that take turns."""

import itertools
import operator
import os
import signal

import pytest
import trio
import trio.lowlevel

from hermes_actors.errors import HermesError, Refused, Unavailable
from hermes_actors.runtime.workers import (
    OWNER_WAITING_MAX,
    PROCESSES,
    WAITING_MAX,
    Job,
    WorkerPool,
)


@pytest.fixture
async def pool():
    pool, stop = WorkerPool(), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.run, stop)
        yield pool
        stop.set()


def job(owner, done, is_wanted=lambda: True, work=operator.add, args=(1, 2)):
    return Job(owner, 1.0, work, args, done, is_wanted)


@pytest.mark.live
async def test_a_worker_answers_in_another_process_whatever_the_size(pool):
    assert await pool.ask("a", 1.0, os.getpid) != os.getpid()
    large = b"x" * 3_000_000
    assert await pool.ask("a", 1.0, operator.concat, large, b"y") == large + b"y"


@pytest.mark.live
@pytest.mark.parametrize(
    ("work", "args", "why"),
    [
        (sum, (itertools.count(),), "more than 50 ms of CPU"),
        (signal.raise_signal, (signal.SIGSEGV,), "crashes its worker process"),
        (bytearray, (2**31,), "more memory"),
    ],
)
async def test_what_never_ends_or_crashes_is_refused_and_the_next_job_is_run(pool, work, args, why):
    with pytest.raises(Refused, match=why):
        await pool.ask("a", 0.05, work, *args)
    assert await pool.ask("a", 1.0, operator.add, 1, 2) == 3


@pytest.mark.live
async def test_a_killed_worker_is_not_the_jobs_fault_and_a_terminal_ends_none(pool):
    pids = {await pool.ask("a", 1.0, os.getpid) for _ in range(4)}
    for pid in pids:
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGHUP)
    assert await pool.ask("a", 1.0, os.getpid) in pids
    with pytest.raises(Unavailable):
        await pool.ask("a", 1.0, signal.raise_signal, signal.SIGKILL)
    assert await pool.ask("a", 1.0, operator.add, 1, 2) == 3


@pytest.mark.live
async def test_workers_end_with_the_pool_and_the_others_jobs_are_told(pool):
    stop = trio.Event()
    results: list[object] = []
    pool = WorkerPool()
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pool.run, stop)
            pid = await pool.ask("a", 1.0, os.getpid)
            for _ in range(PROCESSES + 2):
                pool.submit(job("a", results.append, work=sum, args=(itertools.count(),)))
            await trio.lowlevel.checkpoint()
            stop.set()
    assert [type(each) for each in results] == [Unavailable] * (PROCESSES + 2)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    pool.submit(job("a", results.append))
    assert isinstance(results[-1], Unavailable)


def taken(pool):
    """The owners whose jobs are run, in their order."""
    owners = []
    while (each := pool._take()) is not None:
        owners.append(each.owner)
    return owners


def test_owners_take_turns():
    pool = WorkerPool()
    for owner in "aaaabbc":
        pool.submit(job(owner, lambda _result: None))
    assert taken(pool) == list("abcabaa")


def test_the_jobs_that_wait_are_bounded_for_each_owner_and_in_all():
    pool = WorkerPool()
    results: list[object] = []
    for _ in range(OWNER_WAITING_MAX + 1):
        pool.submit(job("a", results.append))
    assert [type(each) for each in results] == [Unavailable]
    for number in range(WAITING_MAX):
        pool.submit(job(f"b{number}", results.append))
    assert pool.waiting == WAITING_MAX
    assert len(results) == 1 + OWNER_WAITING_MAX


def test_owners_of_many_jobs_give_way_to_an_owner_of_few():
    pool = WorkerPool()
    results: list[object] = []
    for number in range(WAITING_MAX):
        pool.submit(job(f"greedy{number % 4}", results.append))
    assert results == []
    few: list[object] = []
    for _ in range(3):
        pool.submit(job("modest", few.append))
    assert few == []
    assert [type(each) for each in results] == [Unavailable] * 3
    assert pool.waiting == WAITING_MAX
    assert taken(pool)[:5].count("modest") == 1


def test_what_nobody_waits_for_is_not_run():
    pool = WorkerPool()
    results: list[object] = []
    pool.submit(job("a", results.append, is_wanted=lambda: False))
    pool.submit(job("a", results.append))
    assert taken(pool) == ["a"]
    assert isinstance(results[0], HermesError)
