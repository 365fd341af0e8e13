"""Promises of the coordination: one owner at a time, found soon, and not moved without need."""

from collections import defaultdict
from collections.abc import Mapping

from hermes_actors.log.commits import decode
from hermes_chaos.sim.checkers.checker import Checker, shown
from hermes_chaos.sim.history.events import (
    Allowed,
    Attempted,
    Calmed,
    Committing,
    Ended,
    Event,
    Forgotten,
    Healed,
    Lettered,
    Rested,
    Stored,
    Troubled,
    coordination_of,
)
from hermes_chaos.sim.history.ledger import Ledger
from hermes_chaos.sim.history.standing import Coordinated, Named
from hermes_chaos.sim.workload.subject import Subject

UNOWNED_MAX_MS = 6_000
"""A lease of 3 s, a claim, a plan and a hand-over, in log time."""
OWNED_WITHIN_S = 10.0
FORGOTTEN_S = 15.0
"""Longer if a paused node has written to a log that was emptied: the others wait 10 s for it."""
_LETTERS_PARTITION = 0


class Ledgers:
    """A ledger for each datacentre, and the life behind each boot."""

    def __init__(self) -> None:
        self.of: dict[str, Ledger] = defaultdict(Ledger)
        self._lives: dict[str, str] = {}

    def watch(self, event: Event) -> None:
        """Note the event."""
        match event:
            case Coordinated():
                self.of[event.dc].fold(event)
            case Named(life, boot):
                self._lives[boot] = life
            case Forgotten(dc):
                self.of[dc] = Ledger(self.of[dc].clock_ms)
            case _:
                pass

    def owner(self, dc: str, subscription: str, partition: int) -> tuple[str, int]:
        """The life that owns the partition now, and its epoch. An empty string and -1 if nobody
        does.
        """
        holding = self.of[dc].holding(subscription, partition)
        return ("", -1) if holding is None else (self._lives.get(holding.boot, ""), holding.epoch)


class OneOwner(Checker):
    """Only the life of a node that owns a message's partition at that moment, by its datacentre's
    coordination log, pushes it or commits, and it commits under exactly that grant. A former
    owner's pushes under way may end; `ended_late` counts them.
    """

    name = "there is one owner"

    def __init__(self, subject: Subject, ledgers: Ledgers) -> None:
        super().__init__()
        self._ledgers = ledgers
        self._subscriptions = {each.group: each.name for each in subject.audiences}
        self._where: dict[tuple[str, str], list[int]] = {}
        self._lettered: set[tuple[str, str, str]] = set()
        self.ended_late = 0

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Stored(place, _, message_id):
                self._where.setdefault((place[0], message_id), []).append(place[2])
            case Lettered(dc, letter):
                self._lettered.add((dc, letter.subscription, letter.message_id))
            case Attempted():
                self.examined += 1
                if not self._owns(event):
                    self.violations.append(
                        f"{event.node} pushed {event.message_id} to {event.subscription} at "
                        f"{event.at_s:.3f}, and owned none of {self._places(event)}"
                    )
            case Ended(attempt=attempt):
                self.ended_late += not self._owns(attempt)
            case Committing():
                self._check(event)
            case _:
                pass

    def _places(self, attempt: Attempted) -> list[int]:
        """The partitions that the attempt may belong to; of several copies it is unclear which one
        it is.
        """
        if attempt.sequence is not None:
            return [attempt.sequence[0]]
        dc, found = attempt.dc, set[int]()
        for message_id in attempt.ids or (attempt.message_id,):
            found.update(self._where.get((dc, message_id), ()))
            if (dc, attempt.subscription, message_id) in self._lettered:
                # One owner re-drives all letters.
                found.add(_LETTERS_PARTITION)
        return sorted(found)

    def _owns(self, attempt: Attempted) -> bool:
        places = self._places(attempt)
        return not places or any(
            self._ledgers.owner(attempt.dc, attempt.subscription, partition)[0] == attempt.node
            for partition in places
        )

    def _check(self, committing: Committing) -> None:
        name = self._subscriptions.get(committing.group)
        if name is None:
            return
        for partition, commit in committing.commits.items():
            self.examined += 1
            made_by = decode(commit).ownership
            epoch = -1 if made_by is None else made_by.epoch
            owner, since = self._ledgers.owner(committing.dc, name, partition)
            if (owner, since) != (committing.life, epoch):
                self.violations.append(
                    f"{committing.life} committed {commit.position} of partition {partition} for "
                    f"{name} at {committing.at_s:.3f} in the name of {epoch}; the owner is "
                    f"{owner or 'nobody'} since {since}"
                )


class PartsAreOfOne(Checker):
    """The rate shares that all owners of a subscription use in a datacentre never exceed its rate
    in total, however much of the log each has read.
    """

    name = "parts of a rate are of one"
    is_rare = True

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._rates = {each.name: each.rate for each in subject.audiences}

    def watch(self, event: Event) -> None:
        """Check the event."""
        if isinstance(event, Allowed):
            self.examined += 1
            rate = self._rates[event.subscription]
            if sum(event.parts.values()) > rate * (1 + 1e-9):
                self.violations.append(
                    f"of {rate} messages a second for {event.subscription} the owners take "
                    f"{dict(event.parts)} at {event.at_s:.3f}"
                )


class OwnersAreFound(Checker):
    """No partition of a planned subscription is without an owner for more than 6 s of log time
    while a node is a member and nothing is broken in that datacentre. 10 s after the last fault all
    partitions are owned, 25 s if the coordination log was emptied.
    """

    name = "owners are found"

    def __init__(self, subject: Subject, ledgers: Ledgers, partitions: int) -> None:
        super().__init__()
        self._ledgers = ledgers
        # Others are removed and created again meanwhile.
        self._lasting = [each.name for each in subject.audiences if not each.is_late]
        self._all = [each.name for each in subject.audiences]
        self._partitions = range(partitions)
        self._planned: set[tuple[str, str]] = set()
        self._unowned_ms: dict[tuple[str, str, int], int] = {}
        self._broken: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
        self._due_s = float("inf")
        self._extra_s: dict[str, float] = {}
        self._judged: set[str] = set()

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Troubled(where, fault, at_s, lasts_s):
                for dc in self._ledgers.of:
                    if where.startswith(dc) or where == coordination_of(dc):
                        self._broken[dc][where, fault] = at_s + lasts_s
                        self._begin_anew(dc)
            case Calmed(where, at_s):
                for dc, broken in self._broken.items():
                    for key in [key for key in broken if key[0] == where]:
                        broken[key] = min(broken[key], at_s)
                        self._begin_anew(dc)
            case Healed(at_s):
                self._due_s = at_s + OWNED_WITHIN_S
            case Forgotten(dc):
                self._extra_s[dc] = FORGOTTEN_S
            case Coordinated(dc=dc, at_s=at_s):
                self._check(dc, at_s)
                due_s = self._due_s + self._extra_s.get(dc, 0.0)
                if at_s >= due_s and dc not in self._judged:
                    self._judged.add(dc)
                    self._check_all(dc, self._lasting, at_s)
            case Rested(at_s):
                for dc in self._ledgers.of:
                    self._check_all(dc, self._all, at_s)
            case _:
                pass

    def _begin_anew(self, dc: str) -> None:
        for key in [key for key in self._unowned_ms if key[0] == dc]:
            self._unowned_ms[key] = self._ledgers.of[dc].clock_ms

    def _check(self, dc: str, at_s: float) -> None:
        ledger = self._ledgers.of[dc]
        if not ledger.members or any(until >= at_s for until in self._broken[dc].values()):
            self._begin_anew(dc)
        self._planned.update((dc, name) for name in ledger.planned)
        for name in self._lasting:
            if (dc, name) not in self._planned:
                continue
            for partition in self._partitions:
                self.examined += 1
                key = dc, name, partition
                if ledger.holding(name, partition) is not None:
                    self._unowned_ms.pop(key, None)
                    continue
                since_ms = self._unowned_ms.setdefault(key, ledger.clock_ms)
                if ledger.clock_ms - since_ms > UNOWNED_MAX_MS:
                    self._unowned_ms[key] = 2**62
                    self.violations.append(
                        f"nobody has owned partition {partition} of {name} in {dc} for more than "
                        f"{UNOWNED_MAX_MS / 1_000:g} s of log time, at {at_s:.3f}"
                    )

    def _check_all(self, dc: str, names: list[str], at_s: float) -> None:
        ledger = self._ledgers.of[dc]
        unowned = [
            f"{name}/{partition}"
            for name in names
            for partition in self._partitions
            if ledger.holding(name, partition) is None
        ]
        if unowned:
            self.violations.append(f"nobody owns {shown(unowned)} in {dc} at {at_s:.3f}")


class BalancerSettles(Checker):
    """At rest nothing is moved any more, and no node carries much more than others: at most half
    more than the mean, plus the heaviest task. Tasks cost what nodes measured, at least the cost of
    an idle one. Weights follow the measurements for minutes, so one more plan may move something.
    """

    name = "the balancer settles"

    def __init__(self, ledgers: Ledgers) -> None:
        super().__init__()
        self._ledgers = ledgers
        self._moves: dict[str, int] = {}
        self._weights: Mapping[str, Mapping[str, float]] = {}

    def watch(self, event: Event) -> None:
        """Note the event."""
        if isinstance(event, Rested):
            self._moves = {dc: len(ledger.moves) for dc, ledger in self._ledgers.of.items()}
            self._weights = event.weights

    def finish(self) -> None:
        """Judge what is only known at the end."""
        for dc, count in self._moves.items():
            self.examined += 1
            ledger = self._ledgers.of[dc]
            moves = ledger.moves[count + 1 :]
            if moves:
                self.violations.append(
                    f"all was at rest in {dc}, and the plan at {moves[0]} moves something"
                )
            tasks = ledger.tasks(self._weights.get(dc, {}))
            loads = {boot: sum(costs) for boot, costs in tasks.items()}
            mean = sum(loads.values()) / max(1, len(loads))
            heaviest = max((cost for costs in tasks.values() for cost in costs), default=0.0)
            if any(load > 1.5 * mean + heaviest for load in loads.values()):
                by_node = {ledger.members[boot]: len(costs) for boot, costs in tasks.items()}
                carried = {ledger.members[boot]: round(load, 2) for boot, load in loads.items()}
                self.violations.append(f"the nodes of {dc} own {by_node}, and carry {carried}")
