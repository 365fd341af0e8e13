"""The ends of messages and the retransmissions of subscriptions, as checkers know them from
answers, dead letters and events alone.
"""

from collections import defaultdict

from hermes_chaos.sim.history.events import Answer, Event, Lettered, Sought
from hermes_chaos.sim.workload.subject import Subject

NEVER_S = float("-inf")


class Settlements:
    """When a message was last settled for a subscription in a datacentre: every recipient has given
    a final answer, or the dead letter is stored.
    """

    def __init__(self, subject: Subject) -> None:
        self._by_name = subject.by_name
        self._answered: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
        self._lettered: dict[tuple[str, str, str], float] = {}

    def watch(self, event: Event) -> None:
        """Note the event."""
        match event:
            case Answer(dc, name, message_id, status):
                if self._by_name[name].settles(status):
                    self._answered[dc, name, message_id][event.host] = event.at_s
            case Lettered(dc, letter, at_s):
                self._lettered[dc, letter.subscription, letter.message_id] = at_s
            case _:
                pass

    def at_s(self, dc: str, name: str, message_id: str) -> float:
        """The time of settling; `NEVER_S` if it was not settled."""
        return max(self.delivered_s(dc, name, message_id), self.lettered_s(dc, name, message_id))

    def delivered_s(self, dc: str, name: str, message_id: str) -> float:
        """When the last of its recipients answered."""
        answers = self._answered.get((dc, name, message_id))
        if answers is None or len(answers) < self._by_name[name].recipients:
            return NEVER_S
        return min(answers.values())

    def lettered_s(self, dc: str, name: str, message_id: str) -> float:
        """When its dead letter was stored."""
        return self._lettered.get((dc, name, message_id), NEVER_S)


class Seeks:
    """The retransmissions of each subscription, as each datacentre first heard of them."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], dict[int, Sought]] = defaultdict(dict)

    def watch(self, event: Event) -> None:
        """Note the event."""
        if isinstance(event, Sought):
            self._known[event.dc, event.subscription].setdefault(event.number, event)

    def find(self, dc: str, name: str, number: int) -> Sought | None:
        """The retransmission with that number; None if there is none."""
        return self._known[dc, name].get(number)

    def last(self) -> list[Sought]:
        """The last retransmission of each subscription and datacentre."""
        return [each[max(each)] for each in self._known.values() if each]
