"""Pushes one message to all of its recipients, each until it has the message, and sums up an
attempt in one outcome.

An attempt pushes to the resolved recipients that do not have the message yet, several at once up to
a bound. `Served` remembers who took or refused it; a crash loses that memory. Pure except for the
pushes, which are passed in.
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
    """Callbacks of the dispatcher. `may_begin` is checked right before sending something that had
    to wait. `is_over`: outcomes are ignored from now on. `fail` gets the exception of a callback.
    """

    may_begin: Callable[[], bool]
    is_over: Callable[[], bool]
    fail: Callable[[Exception], None]


class Broadcast:
    """One attempt at one message. `push` starts a push to one recipient. `done` is called exactly
    once, possibly inside `begin`, unless the caller `is_over`.
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
        """Push to the recipients that do not have the message yet, within the bound."""
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
            # They are tried in the next attempt.
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
    """The recipients of a re-driven message: those that its letter lists as missed, if they still
    exist; else all.
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
    """One outcome for an attempt whose `outcomes` are given by recipient key.

    Success if all recipients have the message. Else the largest status among the recipients to be
    tried again (or the first failure) with the shortest pause that one of them asks for. If none is
    to be tried again, the largest status of those that refused. Without recipients: UNRESOLVED, to
    be retried.
    """
    of_each = tuple(outcomes.values())
    if not recipients:
        return SendOutcome(0, "", Failure.UNRESOLVED, "there is no recipient to push to", of_each)
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
        # When the subscription is resumed, they are tried again.
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
