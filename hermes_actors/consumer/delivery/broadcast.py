"""One message to all of its recipients: who has it gets it no more, and one outcome sums it up.

An attempt pushes to those recipients, of the ones resolved for it, that do not have the message
yet: several at once, bounded. `Served` remembers who took it, or refused it for good; that is lost
in a crash. Pure but for the pushes, which are handed in.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from hermes_actors.consumer.delivery.delivery import Served
from hermes_actors.consumer.delivery.retry import RetryPolicy, asked_pause_ms
from hermes_actors.consumer.recipients.resolver_recipients import Recipient
from hermes_actors.consumer.senders.sender import NOT_BEGUN, Done, Failure, SendOutcome
from hermes_actors.model.dead_letter import Letter

_NAMED_MAX = 10
_NAME_CHARACTERS_MAX = 200
_GONE_STATUS = 410
_OK_STATUS = 200


class PushCallbacks(Struct, frozen=True):
    """Callbacks of whoever has pushes made. `may_begin` is asked immediately before anything is
    sent that had to wait first. `is_over` says that nobody hears of outcomes any more; `fail` is
    told what a callback raised.
    """

    may_begin: Callable[[], bool]
    is_over: Callable[[], bool]
    fail: Callable[[Exception], None]


class Broadcast:
    """One attempt at one message. `push` starts a push to one recipient. `done` is called exactly
    once, also from inside `begin`, unless it is over.
    """

    def __init__(
        self,
        recipients: Sequence[Recipient],
        served: Served,
        policy: RetryPolicy,
        caller: PushCallbacks,
        *,
        push: Callable[[Recipient, Done], None],
        done: Done,
        now_ms: Callable[[], int],
        pushes_max: int,
    ) -> None:
        self._recipients = recipients
        self._served = served
        self._policy = policy
        self._push = push
        self._done = done
        self._caller = caller
        self._now_ms = now_ms
        self._pushes_max = pushes_max
        self._left: deque[Recipient] = deque()
        self._outcomes: dict[str, SendOutcome] = {}
        self._open = 0

    def begin(self) -> None:
        """Push to all that do not have it, as many at once as may be."""
        for each in self._recipients:
            if self._served.has(each.key):
                continue
            if each.route is None:
                unresolved = SendOutcome(0, "", Failure.UNRESOLVED, each.problem)
                self._outcomes[each.key] = unresolved
            else:
                self._left.append(each)
        if not self._left:
            self._end()
            return
        while self._left and self._open < self._pushes_max:
            self._next()

    def _next(self) -> None:
        recipient = self._left.popleft()
        self._open += 1
        self._push(recipient, partial(self._on_outcome, recipient))

    def _on_outcome(self, recipient: Recipient, outcome: SendOutcome) -> None:
        if self._caller.is_over():
            return
        self._open -= 1
        self._outcomes[recipient.key] = outcome
        self._served.note(recipient, outcome, self._policy)
        if self._left and not self._caller.may_begin():
            # They are tried again with the next attempt.
            self._outcomes.update((each.key, NOT_BEGUN) for each in self._left)
            self._left.clear()
        if self._left:
            self._next()
        elif not self._open:
            self._end()

    def _end(self) -> None:
        now_ms = self._now_ms()
        took = self._served.took
        self._served.missed = tuple(each.name for each in self._recipients if each.key not in took)
        self._done(summed_up(self._recipients, self._outcomes, self._served, now_ms=now_ms))


def who_missed(letter: Letter | None, recipients: list[Recipient]) -> list[Recipient]:
    """Whom a message goes to that is tried again on demand: those who missed it, as its letter
    names them, as far as they are still there; else all.
    """
    if letter is None or not letter.missed:
        return recipients
    return [each for each in recipients if each.name in letter.missed] or recipients


def summed_up(
    recipients: Sequence[Recipient],
    outcomes: dict[str, SendOutcome],
    served: Served,
    *,
    now_ms: int,
) -> SendOutcome:
    """One outcome for the attempt whose `outcomes` are given by key.

    A success if all have it. Else, while anybody is to be tried again, the largest status among
    them (or the first failure) and the smallest pause that one of them asks for; and if nobody is,
    the largest status of those who refused. Nobody to push to: to be tried later.
    """
    of_each = tuple(outcomes.values())
    if not recipients:
        return SendOutcome(0, "", Failure.UNRESOLVED, "there is nobody to push to", of_each)
    waiting = [
        (each.name, outcomes[each.key])
        for each in recipients
        if each.key in outcomes and not served.has(each.key)
    ]
    refused = list(served.refused.values())
    if not waiting and not refused:
        return SendOutcome(_OK_STATUS, recipients=of_each)
    failing = [outcome for _, outcome in waiting or refused]
    worst = max(failing, key=_weight)
    pauses = [
        (pause_ms, each.retry_after)
        for each in failing
        if (pause_ms := asked_pause_ms(each, now_ms)) is not None
    ]
    missed = [
        f"{name[:_NAME_CHARACTERS_MAX]} ({outcome.reason()[:_NAME_CHARACTERS_MAX]})"
        for name, outcome in (*waiting, *refused)
    ]
    is_gone = not waiting and all(_is_gone(served, each.key) for each in recipients)
    if is_gone:
        # Whoever resumes the subscription wants it tried again.
        served.refused.clear()
    return SendOutcome(
        worst.status,
        min(pauses)[1] if pauses else "",
        worst.failure,
        "missed by " + _listed(missed),
        of_each,
        not is_gone,
    )


def _weight(outcome: SendOutcome) -> tuple[int, bool]:
    return outcome.status, not outcome.is_local


def _is_gone(served: Served, key: str) -> bool:
    refused = served.refused.get(key)
    return refused is not None and refused[1].status == _GONE_STATUS


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMED_MAX])
    further = len(names) - _NAMED_MAX
    return f"{shown} and {further} more" if further > 0 else shown
