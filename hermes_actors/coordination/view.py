"""One datacentre's coordination as the other parts of a node read and watch it."""

from collections.abc import Callable, Sequence

import trio
from msgspec import Struct

from hermes_actors.coordination.commands import Heartbeat, Said, coordination_topic
from hermes_actors.coordination.lease import Lease
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.values import Changed
from hermes_actors.log.base import Log
from hermes_actors.log.watch import FoldWatch
from hermes_actors.model.record import StoredRecord


def _ignore(_names: Sequence[str] = ()) -> None:
    return


class ViewChanges(Struct, frozen=True):
    """The changes since a watcher looked last.

    `subscriptions`, sorted: their targets, grants or usable shares may be others. `members`: one
    came or went.
    """

    subscriptions: tuple[str, ...]
    members: bool


class CoordinationWatch(FoldWatch):
    """Tells one task what changes of who takes part and who owns what: all there is first.

    As a context manager: `with coordination.watch() as watch`.
    """

    def __init__(
        self,
        state: CoordinationState,
        on_close: Callable[["CoordinationWatch"], None],
        on_change: Callable[[Sequence[str]], None],
    ) -> None:
        super().__init__(on_close)
        self._on_change = on_change
        self._names: dict[str, None] = {}
        self._members = self._is_other = False
        self.begin_anew(state)

    def note(self, changed: Changed) -> None:
        """Take in a change; the fold calls it."""
        self._names.update(dict.fromkeys(changed.subscriptions))
        self._members |= changed.members
        self._is_other |= changed.leader
        self._on_change(changed.subscriptions)
        self._wakeup.set()

    def begin_anew(self, state: CoordinationState) -> None:
        """Take in that the state is another one now; the fold calls it."""
        self._names.update(dict.fromkeys(state.subscriptions))
        self._members = True
        self._wakeup.set()

    @property
    def has_changes(self) -> bool:
        """True while there is something to take."""
        return bool(self._names or self._members or self._is_other)

    def take_nowait(self) -> ViewChanges:
        """Return all that has changed, perhaps nothing."""
        seen = ViewChanges(tuple(sorted(self._names)), self._members)
        self._names = {}
        self._members = self._is_other = False
        return seen


class Coordination:
    """The folded coordination log of the datacentre whose log this is.

    Made once for each node; its reader may be restarted. `state` is always there to read, but
    another object once the log turned out to be another one (`generation` counts that). Only while
    `is_current` does it follow the log; nothing is decided or begun by it otherwise.
    """

    def __init__(self, log: Log, namespace: str = "") -> None:
        self.log = log
        self.topic = coordination_topic(namespace)
        self.state = CoordinationState()
        self.generation = 0
        self.undecodable = 0
        """Records that this version cannot read."""
        self.last: StoredRecord | None = None
        """The record that was folded last, None if there was none since a snapshot."""
        self.has_listened = False
        """Whether there was silence for as long as a lease before this state was begun with."""
        self._trouble = "the coordination log has not been read yet"
        self._changed_health = trio.Event()
        self._watches: list[CoordinationWatch] = []
        self._lease: Lease | None = None
        self._was_member = False
        self._on_doubt: Callable[[], None] = _ignore

    @property
    def dc(self) -> str:
        """The datacentre whose coordination this is."""
        return self.log.dc

    @property
    def is_current(self) -> bool:
        """True while the log is being followed: read to its end, and answering."""
        return not self._trouble

    @property
    def trouble(self) -> str:
        """Why the log is not followed; "" while it is."""
        return self._trouble

    async def wait_current(self) -> None:
        """Wait until the log is being followed."""
        await trio.lowlevel.checkpoint()
        while self._trouble:
            await self._changed_health.wait()

    async def until(self, condition: Callable[[CoordinationState], bool]) -> None:
        """Wait until the state is so. It is asked again when something has changed."""
        await trio.lowlevel.checkpoint()
        with self.watch() as watch:
            while not condition(self.state):
                await watch.wait()
                watch.take_nowait()

    def watch(self, on_change: Callable[[Sequence[str]], None] = _ignore) -> CoordinationWatch:
        """Watch all that there is as a change, then what changes. Close the watch, or use `with`.

        `on_change` is called with the subscriptions that a record changes while it is folded, and
        so before a heartbeat that follows it opens the lease. It must be quick.
        """
        watch = CoordinationWatch(self.state, self._watches.remove, on_change)
        self._watches.append(watch)
        return watch

    def hold(self, lease: Lease | None) -> None:
        """Take this lease as the one that own heartbeats open from now on; one of a member that is
        gone, or of another log, is lost in the very moment that shows it.
        """
        self._lease = lease
        self._was_member = False

    def doubt(self, trouble: str) -> None:
        """Lose the lease at once, and follow nothing until the reader has looked: somebody has seen
        that the log is not the one that was read.
        """
        self.lose_lease()
        self.report(f"the coordination log is doubted: {trouble}")
        self._on_doubt()

    # What follows is for the reader.

    def lose_lease(self) -> None:
        """Lose the held lease: the log that it stood on is not known any more. A node that went on
        to speak in its name would be a stranger to all who begin, and they wait until no stranger
        is heard.
        """
        if self._lease is not None:
            self._lease.lose()

    def fold(self, stored: StoredRecord, said: Said | None) -> None:
        """Fold one record, and tell who watches."""
        state, lease = self.state, self._lease
        if said is None:
            self.undecodable += 1
        changed = state.apply(stored.offset, stored.timestamp_ms, said)
        self.last = stored
        if changed:
            for watch in self._watches:
                watch.note(changed)
        if lease is None:
            return
        if lease.boot in state.members:
            self._was_member = True
            if isinstance(said, Heartbeat) and said.boot == lease.boot:
                lease.folded(said.number)
        elif self._was_member:
            lease.lose()

    def begin_anew(
        self, state: CoordinationState, last: StoredRecord | None, *, has_listened: bool = False
    ) -> None:
        """Replace the state, and lose the lease: the log is another one, or is read for the first
        time.
        """
        self.has_listened = has_listened
        self.lose_lease()
        self.state = state
        self.last = last
        self.generation += 1
        for watch in self._watches:
            watch.begin_anew(state)

    def ask_when_doubted(self, look: Callable[[], None]) -> None:
        """Have `look` called from now on when somebody doubts the log."""
        self._on_doubt = look

    def report(self, trouble: str) -> None:
        """Record why the log is not followed; "" when it is."""
        if trouble != self._trouble:
            self._trouble = trouble
            self._changed_health.set()
            self._changed_health = trio.Event()
