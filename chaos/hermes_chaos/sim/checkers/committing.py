"""Checks commits: a settled message stays settled for the next owner."""

from collections import defaultdict

from hermes_actors.coordination.commands import Release
from hermes_actors.log.base import Commit
from hermes_actors.log.commits import LastRead, Progress, decode
from hermes_chaos.sim.checkers.checker import Checker, shown
from hermes_chaos.sim.history.events import (
    Adopted,
    Attempted,
    Calmed,
    Committed,
    Committing,
    Dropped,
    Ended,
    Event,
    Expired,
    Lettered,
    Overtaken,
    Place,
    Recalled,
    Sought,
    Stored,
    Troubled,
    coordination_of,
)
from hermes_chaos.sim.history.standing import Coordinated, Named
from hermes_chaos.sim.workload.subject import Subject

_HEARD_WITHIN_S = 2.0
_STOPS_WITHIN_S = 4.5
"""The grace of a hand-over for pushes under way, plus a commit's time limit."""


def _covers(progress: Progress, offset: int) -> bool:
    return offset < progress.position or any(
        start <= offset < end for start, end in progress.intervals
    )


class SettledStaySettled(Checker):
    """A consumer pushes nothing that the commit with which it began lists as settled, or one of its
    own. If it hands partitions over, or stops in good order, it has committed everything that it
    delivered. So an orderly hand-over repeats nothing, and a restart only what was not committed.

    Not judged: messages that were retransmitted, given up, lost by the log, or stored twice;
    hand-overs with trouble in that datacentre's log or coordination, which may have prevented the
    last commit; and commits whose last-read record the log has lost, because a new owner detects
    that by the record.
    """

    name = "settled stay settled"
    is_rare = True

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        # Late subscriptions are removed and created again, so commits of an earlier life prove
        # nothing.
        lasting = [each for each in subject.audiences if not each.is_late]
        self._by_group = {each.group: each.name for each in lasting}
        self._by_name = {each.name: each for each in lasting}
        self._where: dict[tuple[str, str], list[tuple[Place, int]]] = defaultdict(list)
        self._commits: dict[tuple[str, Place], Progress] = {}
        self._found: dict[tuple[str, str], dict[Place, Progress]] = defaultdict(dict)
        self._adopted: set[tuple[str, str]] = set()
        self._making: dict[tuple[str, str], Committing] = {}
        self._delivered: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        self._lettered: set[tuple[str, str]] = set()
        self._lives: dict[str, str] = {}
        self._sought: dict[tuple[str, str], Sought] = {}
        self._troubled: dict[str, list[Troubled]] = defaultdict(list)
        self._calmed_s: dict[str, float] = {}
        self._read: dict[Place, set[LastRead]] = defaultdict(set)
        self._lost: set[tuple[Place, LastRead]] = set()

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Stored(place, offset, message_id):
                self._where[place[0], message_id].append((place, offset))
            case Committing():
                self._making[event.dc, event.group] = event
            case Committed() if event.group in self._by_group:
                self._commit(event)
            case Adopted(node, name):
                self._adopted.add((node, name))
            case Recalled() if event.group in self._by_group:
                self._begin(event, self._by_group[event.group])
            case Attempted():
                self._check_attempt(event)
            case Ended(attempt=attempt, status=status) if 200 <= status < 300:
                for message_id in attempt.ids or (attempt.message_id,):
                    times = self._delivered[attempt.node, attempt.subscription]
                    times[message_id] = attempt.at_s
            case Lettered(letter=letter):
                self._lettered.add((letter.subscription, letter.message_id))
            case Sought():
                self._seek(event)
            case Named(life, boot):
                self._lives[boot] = life
            case Coordinated(said=Release() as release):
                self._check_release(event, release)
            case Dropped(place, end):
                self._forget(place)
                self._lose(place, end)
            case Expired(place):
                self._forget(place)
            case Troubled():
                self._troubled[event.where].append(event)
            case Calmed(where, at_s):
                self._calmed_s[where] = at_s
            case _:
                pass

    def _commit(self, event: Committed) -> None:
        name, progress = self._by_group[event.group], decode(event.commit)
        owner, sought = progress.ownership, self._sought.get((event.place[0], name))
        if owner is not None and sought is not None and owner.seek < sought.number:
            # Made by an owner that was already stopping when the retransmission came: nobody starts
            # with it.
            self._commits.pop((name, event.place), None)
            return
        if progress.last_read is not None:
            if (event.place, progress.last_read) in self._lost:
                self._commits.pop((name, event.place), None)
                return
            self._read[event.place].add(progress.last_read)
        self._commits[name, event.place] = progress
        making = self._making.get((event.place[0], event.group))
        if making is not None and making.commits.get(event.place[2]) == event.commit:
            self._found[making.life, name][event.place] = progress

    def _begin(self, event: Recalled, name: str) -> None:
        """Note what a consumer begins with: its first reading since it was adopted. Others read
        commits, too.
        """
        key = event.life, name
        if not event.life.startswith(f"{event.dc}-") or key not in self._adopted:
            return
        self._adopted.remove(key)
        read = {(event.dc, event.topic, each): commit for each, commit in event.commits.items()}
        self._found[key] = {
            place: kept
            for place, commit in read.items()
            if (kept := self._commits.get((name, place))) == decode(commit)
        }

    def _check_attempt(self, attempt: Attempted) -> None:
        key = attempt.node, attempt.subscription
        # It began without reading commits, so it took a new version of its subscription.
        self._adopted.discard(key)
        found = self._found.get(key)
        if not found or attempt.retries:
            return
        for message_id in attempt.ids or (attempt.message_id,):
            at = self._place(attempt.dc, attempt.subscription, message_id)
            if at is None or at[0] not in found:
                continue
            self.examined += 1
            if _covers(found[at[0]], at[1]):
                self.violations.append(
                    f"{attempt.node} pushed {message_id} at {at[1]} of {at[0]} to "
                    f"{attempt.subscription} at {attempt.at_s:.3f}, having read or made the commit "
                    f"{found[at[0]].position} {found[at[0]].intervals}"
                )

    def _place(self, dc: str, name: str, message_id: str) -> tuple[Place, int] | None:
        """The place of the message; None if it is unknown, or the message may be pushed again."""
        places = self._where.get((dc, message_id), [])
        is_plain = len(places) == 1 and (name, message_id) not in self._lettered
        return places[0] if is_plain else None

    def _seek(self, event: Sought) -> None:
        dc, name = event.dc, event.subscription
        self._sought[dc, name] = event
        for life, other in list(self._found):
            if other == name and life.startswith(f"{dc}-"):
                del self._found[life, other]
        for other, place in list(self._commits):
            if other == name and place[0] == dc:
                del self._commits[other, place]

    def _forget(self, place: Place) -> None:
        for name, at in list(self._commits):
            if at == place:
                del self._commits[name, at]
        for found in self._found.values():
            found.pop(place, None)

    def _lose(self, place: Place, end: int) -> None:
        # From now on the message's offset may belong to another.
        for key, places in self._where.items():
            if any(at == place and offset >= end for at, offset in places):
                self._where[key] = []
        self._lost.update((place, each) for each in self._read[place] if each.offset >= end)

    def _check_release(self, event: Coordinated, release: Release) -> None:
        life, name, dc = self._lives.get(release.boot, ""), release.subscription, event.dc
        times = self._delivered.pop((life, name), {})
        if name not in self._by_name or self._is_troubled(dc, life, event.at_s):
            return
        sought = self._sought.get((dc, name))
        since_s = float("-inf") if sought is None else sought.at_s + _HEARD_WITHIN_S
        missing: list[str] = []
        for message_id, at_s in times.items():
            at = self._place(dc, name, message_id)
            if at is None or at_s < since_s or self._by_name[name].recipients > 1:
                continue
            progress = self._commits.get((name, at[0]))
            owner = None if progress is None else progress.ownership
            if progress is None or owner is None or owner.epoch != release.epoch:
                continue
            self.examined += 1
            if not _covers(progress, at[1]):
                missing.append(f"{message_id} at {at[1]} of {at[0]}")
        if missing:
            self.violations.append(
                f"{life} handed {name} over at {event.at_s:.3f}, and had delivered and not "
                f"committed {shown(missing)}"
            )

    def _is_troubled(self, dc: str, life: str, at_s: float) -> bool:
        node, since_s = life.partition("#")[0], at_s - _STOPS_WITHIN_S
        return any(
            trouble.at_s + trouble.lasts_s >= since_s
            and not trouble.at_s <= self._calmed_s.get(where, -1.0) < since_s
            for where in (dc, node, coordination_of(dc))
            for trouble in self._troubled[where]
        )


class LateCommitsAreMended(Checker):
    """A former owner's late commit over its successor's is mended: the commit at the end covers at
    least what the one before the late commit covered. Examined are late commits that cover less.
    """

    name = "late commits are mended"
    is_rare = True

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._groups = {each.group for each in subject.audiences}
        self._last: dict[tuple[str, Place], Commit] = {}
        self._before: dict[tuple[str, Place], Commit] = {}
        self._overtaken: dict[tuple[str, Place], tuple[Commit, Commit]] = {}

    def watch(self, event: Event) -> None:
        """Note the event; `finish` judges."""
        match event:
            case Committed(place, group, commit):
                key = group, place
                self._before[key] = self._last.get(key, commit)
                self._last[key] = commit
            case Overtaken(place, group, commit) if group in self._groups:
                self._overtake((group, place), commit)
            case Sought(subscription=name):
                self._forget(name)
            case Dropped(place, end):
                self._cut(place, end)
            case _:
                pass

    def _cut(self, place: Place, end: int) -> None:
        """Forget commits of lost records, which need not be repeated."""
        for key in [key for key in self._overtaken if key[1] == place]:
            del self._overtaken[key]
        for key, last in self._last.items():
            if key[1] == place and last.position > end:
                self._last[key] = Commit(end, last.metadata)

    def _overtake(self, key: tuple[str, Place], late: Commit) -> None:
        before = self._before[key]
        owners = [decode(each).ownership for each in (before, late)]
        # Of another incarnation of the subscription: not comparable.
        lives = [each and each.incarnation for each in owners]
        if lives[0] == lives[1] and _says(late) < _says(before):
            self._overtaken[key] = before, late

    def _forget(self, name: str) -> None:
        for key in [key for key in self._overtaken if name.partition("$")[2] in key[0]]:
            del self._overtaken[key]

    def unmended(self) -> list[str]:
        """Descriptions of the commits that cover less now than before a late one overwrote them."""
        return [
            f"{group}: a late commit of {late.position} came over {before.position} in "
            f"{place}, and at the end it says {self._last[group, place].position}"
            for (group, place), (before, late) in self._overtaken.items()
            if _says(self._last[group, place]) < _says(before)
        ]

    def finish(self) -> None:
        """Judge what is only known at the end."""
        self.examined += len(self._overtaken)
        self.violations += self.unmended()


def _says(commit: Commit) -> tuple[int, int]:
    """How much a commit covers. A later retransmission counts more than any position."""
    owner = decode(commit).ownership
    return (0 if owner is None else owner.seek), commit.position
