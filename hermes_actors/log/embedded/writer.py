"""The embedded log's only writer: a thread that commits all waiting changes as one transaction.

Changes queued during a transaction, of all topics, form the next one, with one fsync. All jobs of a
transaction are handed back to the trio side together.
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

    `append_timeout_s`: an append without an answer by then is Unknown. `queued_bytes_max`: waiting
    for the writer; above it appends are Unavailable. `group_…`: for one transaction.
    """

    append_timeout_s: float = 10.0
    queued_bytes_max: int = 64 * 1024 * 1024
    group_records_max: int = 4_096
    group_bytes_max: int = 8 * 1024 * 1024
    tail_bytes_max: int = 8 * 1024 * 1024
    reading_threads: int = 4


class WriterStatistics(Struct):
    """The writer's counters since it started. A commit is a transaction with one fsync."""

    commits: int = 0
    records: int = 0
    bytes: int = 0
    failed_commits: int = 0


class Job(Generic[T]):
    """One call to the writer. `change` runs inside the transaction, in the writer's thread; after
    the commit `show` applies its result on the trio side.

    If `change` raises ValueError or UnknownTopic, which it does before changing anything, only this
    job fails with that `error`. If the transaction fails, the error is LogUnavailable, and
    `may_be_stored` says whether it may have been committed nevertheless.
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
        """`records` is the maximum that may be written; `written(result)` returns the actual
        number. The functions must not refer to the job, which would keep its records in memory.
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
        """Run the change inside the transaction."""
        try:
            self.result = self._change(store)
            if self._written is not None:
                self.records = self._written(self.result)
        except (ValueError, UnknownTopic) as error:
            self.error = error

    def fail(self, reason: str, *, may_be_stored: bool) -> None:
        """Fail the job because its transaction failed."""
        self.error = LogUnavailable(reason)
        self.may_be_stored = may_be_stored

    def end(self) -> None:
        """Apply the result, unless the job failed, and wake the caller."""
        if self.error is None and self._show is not None:
            self._show(self.result)
        self.is_done.set()


class Writer:
    """The thread, its queue and its schedule.

    `call` calls a function on the trio side. `on_commit(jobs)`, `on_expire(moved)` and `on_end()`
    are called there.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        call: Callable[[Callable[[], object]], object],
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
        self._call = call
        self._on_commit = on_commit
        self._on_expire = on_expire
        self._on_end = on_end
        self._limits = limits
        self._interval_s = retention_check_interval_ms / 1_000
        self.queue: queue.SimpleQueue[Job[Any] | None] = queue.SimpleQueue()
        """Jobs for the thread. After None it finishes what is queued, and ends."""
        self._next: Job[Any] | None = None
        # The jobs of the last transaction, until they are answered.
        self._ended: list[Job[Any]] = []
        self._is_stopping = False
        self._expire_at_s = clock.monotonic_s() + self._interval_s
        self._paused_until_s = 0.0
        self._look_at_s = clock.monotonic_s() + _LOOK_INTERVAL_S
        self.trouble = ""
        """Why nothing is stored any more. Set once by the thread; read by any."""
        self.refusal = ""
        """Why the last transaction failed; empty string if it did not. Set by the thread; read by
        any.
        """

    def start(self) -> None:
        """Start the thread, as a daemon: a hung disk must not keep the process from ending."""
        threading.Thread(target=self._run, name="log-writer", daemon=True).start()

    # Everything below runs in the thread.

    def _run(self) -> None:
        try:
            while True:
                timeout_s = self._idle_s()
                self._answer()
                group = self._collect(timeout_s)
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
            self._answer()
            self._hand_over(self._on_end)

    def _collect(self, timeout_s: float) -> list[Job[Any]]:
        """Collect waiting jobs for one transaction, within its bounds; waits while there are
        none, at most `timeout_s`.
        """
        limits = self._limits
        group: list[Job[Any]] = []
        records = size_bytes = 0
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
        """How long the thread may wait for a job, before retention or the check of the files is
        due.
        """
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
        """Check each second that the log's files are still there, and refuse to store more if one
        is gone: data written to a file without a name is lost when it is closed.
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
            "ran: nothing more is stored; stop the node normally and start it again: it then "
            "reports what is missing"
        )
        _logger.error("%s", self.trouble)

    def _commit(self, group: list[Job[Any]]) -> bool:
        """Run these jobs in one transaction. False if it failed."""
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
                # A write without room did not write the transaction's last page, without which it
                # does not count. After other failures the outcome is unknown.
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
        self._ended = group
        return not reason

    def _answer(self) -> None:
        """Hand back the jobs of the last transaction. The thread does this last before it waits,
        because the loop wakes at once and needs the interpreter.
        """
        if self._ended:
            self._hand_over(partial(self._on_commit, self._ended))
            self._ended = []

    def _keep_house(self) -> None:
        """Take one short step of retention, if one is due, in a separate transaction, so that a
        failure in it fails no append.
        """
        now_s = self._clock.monotonic_s()
        if now_s < self._paused_until_s or self._is_stopping or self.trouble:
            return
        if now_s >= self._expire_at_s:
            self._expire_at_s = now_s + self._interval_s
            self._store.plan_expiry(self._clock.now_ms())
        if not self._store.has_chores:
            return
        self._answer()
        if not self._commit([Job(Store.keep_house, self._on_expire)]):
            # For example a full disk: try again, but after a pause.
            self._paused_until_s = now_s + _PAUSE_AFTER_FAILURE_S

    def _hand_over(self, call: Callable[[], None]) -> None:
        try:
            self._call(call)
        except RuntimeError:
            # The event loop has ended, and with it all callers.
            self._is_stopping = True
