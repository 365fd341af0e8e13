"""Promises about duplicates: each has an allowed cause, and is counted."""

from collections import Counter, defaultdict

from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.faults.strikes import Fault
from hermes_chaos.sim.history.events import Counted, Event, Handed, Published, Told, Troubled
from hermes_chaos.sim.workload.subject import Subject

_DUPLICATED = "hermes_frontend_topic_duplicated_message_total"
_SENT_AGAIN = "hermes_frontend_fallback_messages_total"
_SPOOL = "spool"
_HEDGE = "hedge"


class DuplicatesHaveCauses(Checker):
    """Once a node knows that a log has a message, it hands it to no log again.

    If it had handed it to a second log before, and both turn out to have it, it counts the
    duplicate. Only messages of fallback topics are handed to another datacentre's log. Examined are
    messages that were handed to logs more than once.
    """

    name = "duplicates have causes"
    is_rare = True

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._subject = subject
        self._handed: Counter[tuple[str, str]] = Counter()
        self._known: dict[tuple[str, str], float] = {}
        self._stored: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        self._ways: dict[tuple[str, str, str], str] = {}
        self._repeated: set[str] = set()

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Handed():
                self._hand(event)
            case Told(life, dc, _, stored, at_s):
                for message_id in stored:
                    self._known.setdefault((life, message_id), at_s)
                    if self._ways[life, dc, message_id] != _SPOOL:
                        self._stored[life][message_id, dc] += 1
            case Published() if event.idempotency_key:
                self._repeated.add(event.message_id)
            case Counted() if event.is_whole:
                self._compare(event)
            case _:
                pass

    def _hand(self, handed: Handed) -> None:
        life, dc = handed.life, handed.dc
        if not life.startswith(f"{dc}-") and handed.topic not in self._subject.falls_back:
            self.violations.append(
                f"{life} handed {handed.ids} of {handed.topic}, which does not fall back, to {dc}"
            )
        for message_id, via in zip(handed.ids, handed.vias, strict=True):
            self._ways[life, dc, message_id] = via
            self._handed[life, message_id] += 1
            if self._handed[life, message_id] == 1 or message_id in self._repeated:
                # An unacknowledged message may be stored again under its idempotency key.
                continue
            self.examined += 1
            known_s = self._known.get((life, message_id))
            # Both at the same moment: neither came first.
            if known_s is not None and known_s < handed.at_s:
                self.violations.append(
                    f"{life} handed {message_id} of {handed.topic} to {dc} by {via} at "
                    f"{handed.at_s:.3f}, though it knew at {known_s:.3f} that a log has it"
                )

    def _compare(self, counted: Counted) -> None:
        """Compare the duplicates that the life counted with those that logs reported to it."""
        times = Counter(message_id for message_id, _ in self._stored[counted.life])
        found = sum(count - 1 for each, count in times.items() if each not in self._repeated)
        # A message published twice under one id may have been stored twice each time.
        unsure = sum(
            count
            for (each, _), count in self._stored[counted.life].items()
            if each in self._repeated
        )
        said = sum(value for name, _, value in counted.samples if name == _DUPLICATED)
        if not found <= said <= found + unsure:
            self.violations.append(
                f"{counted.life} was told of {found} messages more than once that a log has them, "
                f"and counted {said:g}"
            )


class HedgesAreFew(Checker):
    """A life of a node hedges at most the budget's share of each topic's messages, plus a burst for
    each start of the topic's producer. Judged by its counters. Examined are the messages to
    fallback topics.
    """

    name = "hedges are few"

    def __init__(self, subject: Subject, budget_percent: int, burst_max: int) -> None:
        super().__init__()
        self._subject = subject
        self._percent = budget_percent
        self._burst_max = burst_max
        self._handed: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._crashes: Counter[str] = Counter()

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Handed(life, _, topic, ids) if topic in self._subject.falls_back:
                self.examined += len(ids)
                self._handed[life][topic].update(ids)
            case Troubled(node, Fault.ACTOR_CRASH.value) if event.topic in self._subject.falls_back:
                self._crashes[node] += 1
            case Counted():
                self._check(event)
            case _:
                pass

    def _check(self, counted: Counted) -> None:
        sizes = [len(ids) for ids in self._handed[counted.life].values()]
        bursts = len(sizes) + self._crashes[counted.life.partition("#")[0]]
        allowed = bursts * self._burst_max + sum(sizes) * self._percent / 100
        hedged = sum(
            value
            for name, labels, value in counted.samples
            if name == _SENT_AGAIN and labels["cause"] == _HEDGE
        )
        if hedged > allowed:
            self.violations.append(
                f"{counted.life} hedged {hedged:g} of {sum(sizes)} messages, {allowed:g} were "
                "allowed"
            )
