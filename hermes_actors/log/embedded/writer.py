"""The embedded log's one writer: a thread that turns all that waits into one transaction.

What was queued while the last transaction ran, across topics, is the next one: one fsync for all
of it. Each job is answered on the trio side, all jobs of a transaction by one hand-over.
"""

import logging
import queue
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import trio
from msgspec import Struct

from hermes_actors.log.base import (
    LogUnavailable,
    Outcome,
    UnavailableRecord,
    UnknownRecord,
    UnknownTopic,
)
from hermes_actors.log.embedded.schema import FILE_ERRORS
from hermes_actors.log.embedded.store import Store
from hermes_actors.model.record import Record
from hermes_actors.model.run import RecordRun
from hermes_actors.runtime.clock import Clock

T = TypeVar("T")

Moved = list[tuple[str, int, int]]
"""(topic, partition, new start): what retention did."""

_logger = logging.getLogger(__name__)

_PAUSE_AFTER_FAILURE_S = 5.0
_LOOK_INTERVAL_S = 1.0
_RECORD_OVERHEAD_BYTES = 256
"""The cost of a waiting or cached record beside its value, roughly."""


class WriterStatistics(Struct):
    """The writer's counters since it started. Commits are transactions, one fsync each."""

    commits: int = 0
    records: int = 0
    bytes: int = 0
    failed_commits: int = 0


class Job(ABC):
    """One call on its way through the writer: `run` in its thread, the rest on the trio side."""

    records = 0
    size_bytes = 0

    def __init__(self) -> None:
        self.is_done = trio.Event()
        self.error: Exception | None = None

    @abstractmethod
    def run(self, store: Store, clock: Clock) -> None:
        """Do it inside the transaction. A ValueError or UnknownTopic concerns this job only, and
        is raised before anything is changed.
        """

    def fail(self, reason: str, *, may_be_stored: bool) -> None:
        """Settle the job with LogUnavailable: the transaction failed."""
        self.error = LogUnavailable(reason)


class AppendJob(Job):
    """An append; failures are outcomes."""

    def __init__(self, topic: str, partition: int, batch: Sequence[Record]) -> None:
        super().__init__()
        self.topic = topic
        self.partition = partition
        self.batch = batch
        self.records = len(batch)
        self.size_bytes = sum(_value_lengths(batch)) + _RECORD_OVERHEAD_BYTES * len(batch)
        self.outcomes: Sequence[Outcome] = []
        self.stored: Sequence[Record] = []
        self.first = 0
        self.stamp_ms: int | None = None

    def run(self, store: Store, clock: Clock) -> None:
        """Append inside the transaction."""
        self.outcomes, self.stored, self.first, self.stamp_ms = store.append(
            self.topic, self.partition, self.batch, clock.now_ms(), clock.monotonic_s()
        )

    def fail(self, reason: str, *, may_be_stored: bool) -> None:
        """Settle every record as unknown if it may be stored, else as unavailable."""
        outcome = UnknownRecord(reason) if may_be_stored else UnavailableRecord(reason)
        self.outcomes = [outcome for _ in self.batch]
        self.stored = []


def _value_lengths(batch: Sequence[Record]) -> Iterable[int]:
    if isinstance(batch, RecordRun):
        return map(len, batch.values)
    return [len(record.value) for record in batch]


class ChangeJob(Job, Generic[T]):
    """Any other change: `change(store)` gives the result, `show` makes it seen after the commit."""

    def __init__(
        self, change: Callable[[Store], T], show: Callable[[T], None] | None = None
    ) -> None:
        super().__init__()
        self._change = change
        self._show = show
        self._result: list[T] = []

    def run(self, store: Store, clock: Clock) -> None:
        """Change inside the transaction."""
        try:
            self._result = [self._change(store)]
        except (ValueError, UnknownTopic) as error:
            self.error = error

    def show(self) -> None:
        """Make it seen, unless it failed."""
        if self.error is None and self._show is not None:
            self._show(self._result[0])

    def result(self) -> T:
        """Return the result of the change; to be called only once it is done without an error."""
        return self._result[0]


class ExpireJob(Job):
    """An expiry of old records as of a time, answered when all partitions' starts have advanced."""

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self.now_ms = now_ms

    def run(self, store: Store, clock: Clock) -> None:
        """Do nothing: the writer takes it step by step between transactions."""


class Writer:
    """The thread, its queue, and when it does what.

    `on_commit(jobs)`, `on_expire(moved)` and `on_end()` are called on the trio side.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        token: trio.lowlevel.TrioToken,
        *,
        on_commit: Callable[[list[Job]], None],
        on_expire: Callable[[Moved], None],
        on_end: Callable[[], None],
        group_records_max: int,
        group_bytes_max: int,
        retention_check_interval_ms: int,
    ) -> None:
        self.statistics = WriterStatistics()
        self._store = store
        self._clock = clock
        self._token = token
        self._on_commit = on_commit
        self._on_expire = on_expire
        self._on_end = on_end
        self._group_records_max = group_records_max
        self._group_bytes_max = group_bytes_max
        self._interval_s = retention_check_interval_ms / 1_000
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._next: Job | None = None
        self._is_stopping = False
        self._sweeps: deque[tuple[Iterator[Moved], ExpireJob | None]] = deque()
        self._sweep_at_s = clock.monotonic_s() + self._interval_s
        self._paused_until_s = 0.0
        self._look_at_s = clock.monotonic_s() + _LOOK_INTERVAL_S
        self.trouble = ""
        """Why nothing is stored any more. Set by the thread, once; read by anyone."""

    def start(self) -> None:
        """Start the thread. It is a daemon: a hung disk must not keep a process from ending."""
        threading.Thread(target=self._run, name="log-writer", daemon=True).start()

    def put(self, job: Job) -> None:
        """Queue a job."""
        self._queue.put(job)

    def stop(self) -> None:
        """Finish what is queued, then end; `on_end` is called."""
        self._queue.put(None)

    # All below runs in the thread.

    def _run(self) -> None:
        try:
            while True:
                group = self._collect()
                self._look_at_files()
                if group and self.trouble:
                    self._fail(group)
                elif group:
                    self._commit(group)
                elif self._is_stopping:
                    break
                self._keep_house()
            for _, job in self._sweeps:
                self._refuse(job)
            self._store.close()
        finally:
            self._hand_over(self._on_end)

    def _collect(self) -> list[Job]:
        """All that waits, within the bounds of a transaction; waits while there is nothing."""
        group: list[Job] = []
        records = size_bytes = 0
        timeout_s = self._idle_s()
        while True:
            job, self._next = self._next, None
            if job is None:
                try:
                    job = (
                        self._queue.get(timeout=timeout_s) if timeout_s else self._queue.get(False)
                    )
                except queue.Empty:
                    return group
            if job is None:
                self._is_stopping = True
                return group
            records += job.records
            size_bytes += job.size_bytes
            if group and (records > self._group_records_max or size_bytes > self._group_bytes_max):
                self._next = job
                return group
            group.append(job)
            timeout_s = 0.0

    def _idle_s(self) -> float:
        """How long the thread may wait for a job: until the next work of its own."""
        if self._is_stopping:
            return 0.0
        if self.trouble:
            return threading.TIMEOUT_MAX
        now_s = self._clock.monotonic_s()
        if now_s < self._paused_until_s:
            return max(min(self._paused_until_s, self._look_at_s) - now_s, 0.001)
        if self._sweeps or self._store.has_garbage:
            return 0.0
        return max(min(self._sweep_at_s, self._look_at_s) - now_s, 0.001)

    def _look_at_files(self) -> None:
        """Refuse to store any more once a file of the log is gone; looks each second. What is
        written to a file that has no name any more is lost at its end.
        """
        now_s = self._clock.monotonic_s()
        if self.trouble or now_s < self._look_at_s:
            return
        self._look_at_s = now_s + _LOOK_INTERVAL_S
        name = self._store.lost_file()
        if not name:
            return
        self.trouble = (
            f"{self._store.path.with_name(name)} was deleted, moved or replaced while the node "
            "ran: nothing more is stored; stop the node in good order and start it again, which "
            "says what is missing"
        )
        _logger.error("%s", self.trouble)
        for _, job in self._sweeps:
            self._refuse(job)
        self._sweeps.clear()

    def _fail(self, group: list[Job]) -> None:
        for job in group:
            job.fail(self.trouble, may_be_stored=False)
        self._hand_over(lambda: self._on_commit(group))

    def _commit(self, group: list[Job]) -> None:
        store, clock, statistics = self._store, self._clock, self.statistics
        is_committing = False
        try:
            store.begin()
            for job in group:
                job.run(store, clock)
            store.flush()
            is_committing = True
            store.commit()
        except FILE_ERRORS as error:
            statistics.failed_commits += 1
            # A write that found no room did not write the transaction's last page, without which
            # it does not count. After any other failure to commit nobody knows.
            is_full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            reason = f"{store.path}: {error}"
            for job in group:
                job.fail(reason, may_be_stored=is_committing and not is_full)
            self._roll_back()
        else:
            statistics.commits += 1
            for job in group:
                if isinstance(job, AppendJob):
                    statistics.records += len(job.stored)
                    statistics.bytes += job.size_bytes
                elif isinstance(job, ExpireJob):
                    self._sweeps.append((store.expire(job.now_ms), job))
        done = [job for job in group if job.error is not None or not isinstance(job, ExpireJob)]
        self._hand_over(lambda: self._on_commit(done))

    def _keep_house(self) -> None:
        """One short step of retention, if one is due."""
        now_s = self._clock.monotonic_s()
        if now_s < self._paused_until_s or self._is_stopping or self.trouble:
            return
        if now_s >= self._sweep_at_s:
            self._sweep_at_s = now_s + self._interval_s
            self._sweeps.append((self._store.expire(self._clock.now_ms()), None))
        try:
            if self._sweeps:
                self._step()
            elif self._store.has_garbage:
                self._store.reclaim()
        except FILE_ERRORS:
            # Disk full, say: it is tried again, but not at once and for ever.
            self._paused_until_s = now_s + _PAUSE_AFTER_FAILURE_S
            self._roll_back()

    def _step(self) -> None:
        steps, job = self._sweeps[0]
        moved = next(steps, None)
        if moved:
            self._hand_over(lambda: self._on_expire(moved))
        elif moved is None:
            self._sweeps.popleft()
            if job is not None:
                self._hand_over(lambda: self._on_commit([job]))

    def _roll_back(self) -> None:
        for _, job in self._sweeps:
            self._refuse(job)
        self._sweeps.clear()
        self._store.roll_back()

    def _refuse(self, job: ExpireJob | None) -> None:
        if job is not None:
            job.fail("the log stopped before retention was done", may_be_stored=False)
            self._hand_over(lambda: self._on_commit([job]))

    def _hand_over(self, call: Callable[[], None]) -> None:
        try:
            self._token.run_sync_soon(call)
        except trio.RunFinishedError:
            # The event loop is gone, and with it everyone who waited.
            self._is_stopping = True
