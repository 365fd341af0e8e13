"""The embedded log's one writer: a thread that turns all that waits into one transaction.

What was queued while the last transaction ran, across topics, is the next one: one fsync for all
of it. Each job is answered on the trio side, all jobs of a transaction by one hand-over.
"""

import logging
import queue
import sqlite3
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

import trio
from msgspec import Struct

from hermes_actors.log.base import LogUnavailable, UnknownTopic
from hermes_actors.log.embedded.schema import FILE_ERRORS
from hermes_actors.log.embedded.store import Moved, Store
from hermes_actors.runtime.clock import Clock

T = TypeVar("T")

_logger = logging.getLogger(__name__)

_PAUSE_AFTER_FAILURE_S = 5.0
_LOOK_INTERVAL_S = 1.0


class EmbeddedLimits(Struct, frozen=True):
    """The bounds of one embedded log.

    `append_timeout_s`: an append without an answer by then is Unknown. `queued_bytes_max`: what
    waits for the writer; above it appends are Unavailable. `group_…`: one transaction.
    """

    append_timeout_s: float = 10.0
    queued_bytes_max: int = 64 * 1024 * 1024
    group_records_max: int = 4_096
    group_bytes_max: int = 8 * 1024 * 1024
    tail_bytes_max: int = 8 * 1024 * 1024
    reading_threads: int = 4


class WriterStatistics(Struct):
    """The writer's counters since it started. Commits are transactions, one fsync each."""

    commits: int = 0
    records: int = 0
    bytes: int = 0
    failed_commits: int = 0


class Job(Generic[T]):
    """One call on its way through the writer: `change` is made inside the transaction, in the
    writer's thread; after the commit `show` makes its result seen, on the trio side.

    A ValueError or UnknownTopic of `change` is this job's `error` alone: it is raised before
    anything is changed. When the transaction fails the error is LogUnavailable, and `may_be_stored`
    says whether it is known to have failed.
    """

    def __init__(
        self,
        change: Callable[[Store], T],
        show: Callable[[T], None] | None = None,
        written: Callable[[T], int] | None = None,
        *,
        records: int = 0,
        size_bytes: int = 0,
    ) -> None:
        """`records` is the most that may be written; `written(result)` is how many were. None of
        the functions may refer to the job, which would keep its records in memory.
        """
        self.records = records
        self.size_bytes = size_bytes
        self.is_done = trio.Event()
        self.error: Exception | None = None
        self.may_be_stored = False
        self.result: T
        self._change = change
        self._show = show
        self._written = written

    def run(self, store: Store) -> None:
        """Make the change inside the transaction."""
        try:
            self.result = self._change(store)
            if self._written is not None:
                self.records = self._written(self.result)
        except (ValueError, UnknownTopic) as error:
            self.error = error

    def fail(self, reason: str, *, may_be_stored: bool) -> None:
        """Settle the job: its transaction failed."""
        self.error = LogUnavailable(reason)
        self.may_be_stored = may_be_stored

    def end(self) -> None:
        """Make the change seen, unless it failed, and wake who waits for it."""
        if self.error is None and self._show is not None:
            self._show(self.result)
        self.is_done.set()


class Writer:
    """The thread, its queue, and when it does what.

    `on_commit(jobs)`, `on_expire(moved)` and `on_end()` are called on the trio side.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        token: trio.lowlevel.TrioToken,
        limits: EmbeddedLimits,
        retention_check_interval_ms: int,
        *,
        on_commit: Callable[[list[Job[Any]]], None],
        on_expire: Callable[[Moved], None],
        on_end: Callable[[], None],
    ) -> None:
        self.statistics = WriterStatistics()
        self._store = store
        self._clock = clock
        self._token = token
        self._on_commit = on_commit
        self._on_expire = on_expire
        self._on_end = on_end
        self._limits = limits
        self._interval_s = retention_check_interval_ms / 1_000
        self.queue: queue.SimpleQueue[Job[Any] | None] = queue.SimpleQueue()
        """Jobs for the thread. After a None it finishes what was queued before, and ends."""
        self._next: Job[Any] | None = None
        self._is_stopping = False
        self._expire_at_s = clock.monotonic_s() + self._interval_s
        self._paused_until_s = 0.0
        self._look_at_s = clock.monotonic_s() + _LOOK_INTERVAL_S
        self.trouble = ""
        """Why nothing is stored any more. Set by the thread, once; read by anyone."""
        self.refusal = ""
        """Why the last transaction failed, "" if it did not. Set by the thread; read by anyone."""

    def start(self) -> None:
        """Start the thread. It is a daemon: a hung disk must not keep a process from ending."""
        threading.Thread(target=self._run, name="log-writer", daemon=True).start()

    # All below runs in the thread.

    def _run(self) -> None:
        try:
            while True:
                group = self._collect()
                self._look_at_files()
                if group:
                    self._commit(group)
                elif self._is_stopping:
                    break
                self._keep_house()
            self._store.close()
        except Exception as error:
            self.trouble = (
                f"{self._store.path}: the log's writer has failed: {error!r}: nothing more is "
                "stored; start the node again"
            )
            _logger.exception("%s", self.trouble)
        finally:
            self._hand_over(self._on_end)

    def _collect(self) -> list[Job[Any]]:
        """All that waits, within the bounds of a transaction; waits while there is nothing."""
        limits = self._limits
        group: list[Job[Any]] = []
        records = size_bytes = 0
        timeout_s = self._idle_s()
        while True:
            job, self._next = self._next, None
            if job is None:
                try:
                    job = self.queue.get(timeout=timeout_s) if timeout_s else self.queue.get(False)
                except queue.Empty:
                    return group
            if job is None:
                self._is_stopping = True
                return group
            records += job.records
            size_bytes += job.size_bytes
            if group and (
                records > limits.group_records_max or size_bytes > limits.group_bytes_max
            ):
                self._next = job
                return group
            group.append(job)
            timeout_s = 0.0

    def _idle_s(self) -> float:
        """How long the thread may wait for a job: until retention or a look at the files is due."""
        if self._is_stopping:
            return 0.0
        if self.trouble:
            return threading.TIMEOUT_MAX
        now_s = self._clock.monotonic_s()
        if now_s < self._paused_until_s:
            return max(min(self._paused_until_s, self._look_at_s) - now_s, 0.001)
        if self._store.has_chores:
            return 0.0
        return max(min(self._expire_at_s, self._look_at_s) - now_s, 0.001)

    def _look_at_files(self) -> None:
        """Refuse to store any more once a file of the log is gone; looks each second. What is
        written to a file that has no name any more is lost at its end.
        """
        now_s = self._clock.monotonic_s()
        if self.trouble or now_s < self._look_at_s:
            return
        self._look_at_s = now_s + _LOOK_INTERVAL_S
        name = self._store.files.lost()
        if not name:
            return
        self.trouble = (
            f"{self._store.path.with_name(name)} was deleted, moved or replaced while the node "
            "ran: nothing more is stored; stop the node in good order and start it again, which "
            "says what is missing"
        )
        _logger.error("%s", self.trouble)

    def _commit(self, group: list[Job[Any]]) -> bool:
        """Make these changes in one transaction, and answer them; False when it failed."""
        store, statistics = self._store, self.statistics
        reason, may_be_stored = self.trouble, False
        if not reason:
            try:
                store.begin()
                for job in group:
                    job.run(store)
                store.flush()
                may_be_stored = True
                store.commit()
            except FILE_ERRORS as error:
                reason = f"{store.path}: {error}"
                # A write that found no room did not write the transaction's last page, without
                # which it does not count. After any other failure to commit nobody knows.
                if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                    may_be_stored = False
                statistics.failed_commits += 1
                store.roll_back()
        self.refusal = reason
        if reason:
            for job in group:
                job.fail(reason, may_be_stored=may_be_stored)
        else:
            statistics.commits += 1
            statistics.records += sum([job.records for job in group])
            statistics.bytes += sum([job.size_bytes for job in group])
        self._hand_over(partial(self._on_commit, group))
        return not reason

    def _keep_house(self) -> None:
        """One short step of retention, if one is due: a transaction of its own, so that what fails
        in it fails nobody's append.
        """
        now_s = self._clock.monotonic_s()
        if now_s < self._paused_until_s or self._is_stopping or self.trouble:
            return
        if now_s >= self._expire_at_s:
            self._expire_at_s = now_s + self._interval_s
            self._store.plan_expiry(self._clock.now_ms())
        if self._store.has_chores and not self._commit([Job(Store.keep_house, self._on_expire)]):
            # Disk full, say: it is tried again, but not at once and for ever.
            self._paused_until_s = now_s + _PAUSE_AFTER_FAILURE_S

    def _hand_over(self, call: Callable[[], None]) -> None:
        try:
            self._token.run_sync_soon(call)
        except trio.RunFinishedError:
            # The event loop is gone, and with it everyone who waited.
            self._is_stopping = True
