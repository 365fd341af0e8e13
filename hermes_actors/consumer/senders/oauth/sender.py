"""Pushes with a token: `Authorization: Bearer` of the subscription's oAuthPolicy, over any sender.

A push that finds no token waits for one within its own request time-out, and ends as a failure of
the node's own: it says nothing of the endpoint. A 401 is tried again at once, with the next token.
"""

from collections.abc import Callable
from functools import partial

import trio
from msgspec import Struct

from hermes_actors.consumer.senders.oauth.tokens import SharedToken, Token, Tokens
from hermes_actors.consumer.senders.oauth.wire import OAuthCredentials
from hermes_actors.consumer.senders.push_tasks import PushTasks
from hermes_actors.consumer.senders.sender import (
    NOT_BEGUN,
    Done,
    Failure,
    Origin,
    Probed,
    Push,
    PushRoute,
    Sender,
    SendOutcome,
    may_begin,
)
from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.model.subscription import OAuthPolicy

UNAUTHORIZED = 401
_LOOKED_FOR_EACH_S = 1.0
_TIME_LEFT_S_MIN = 0.001
_ORIGINS_MAX = 1_000

_Found = tuple[SharedToken, Token] | SendOutcome
ProviderOf = Callable[[str], OAuthProvider | None]


class _WaitingPush(Struct, eq=False):
    """A push until its outcome; `first` is the 401 that it has got before."""

    push: Push
    done: Done
    deadline_s: float
    first: SendOutcome | None = None


class OAuthSender(Sender):
    """`Sender`'s promise over `inner`. One for each version of a subscription.

    A push that says already who sends it (credentials of its endpoint) goes as it is.
    """

    def __init__(
        self,
        inner: Sender,
        policy: OAuthPolicy,
        provider_of: ProviderOf,
        tokens: Tokens,
        tasks: PushTasks,
    ) -> None:
        self._inner = inner
        self._policy = policy
        self._provider_of = provider_of
        self._tokens = tokens
        self._tasks = tasks
        self._provider: OAuthProvider | None = None
        self._shared: SharedToken | None = None
        # The last token that each origin has refused. Others may still be well served by it.
        self._refused: dict[Origin, int] = {}
        self._current()

    @property
    def trouble(self) -> str:
        """Why there is no token now; "" when there is one, or nobody has asked yet."""
        shared = self._current()
        if shared is None:
            return f"OAuth provider {self._policy.provider_name} does not exist"
        slot = shared.slot
        refused = max(self._refused.values(), default=0)
        if slot.token(self._tokens.now_s(), refused) is not None:
            return ""
        name = self._policy.provider_name
        if slot.problem:
            return f"OAuth provider {name} gives no token: {slot.problem}"
        if refused:
            return f"the endpoint does not take the token of OAuth provider {name}"
        return f"waits for a token of OAuth provider {name}" if slot.is_asking else ""

    def send(self, push: Push, done: Done) -> None:
        """Start the push; `done` is called exactly once, later."""
        if _names_its_sender(push):
            self._inner.send(push, done)
            return
        shared = self._current()
        now_s = self._tokens.now_s()
        waiting = _WaitingPush(push, done, now_s + push.request_timeout_ms / 1_000)
        after = self._refused.get(push.route.origin, 0) if self._refused else 0
        token = None if shared is None else shared.slot.token(now_s, after)
        if shared is None or token is None:
            self._wait(waiting)
            return
        if now_s >= token.renewed_s:
            self._tokens.hasten(shared)
        self._push(waiting, push.request_timeout_ms, shared, token)

    def forget(self, subscription: str) -> None:
        """End all pushes of the subscription with CLOSED, those that wait for a token too."""
        self._tasks.forget(subscription)
        self._inner.forget(subscription)

    def probe(self, route: PushRoute, done: Probed) -> bool:
        """As `inner` does: a connection needs no token."""
        return self._inner.probe(route, done)

    def _push(
        self, waiting: _WaitingPush, timeout_ms: int, shared: SharedToken, token: Token
    ) -> None:
        push = waiting.push
        with_token = Push(
            push.route,
            push.lines + token.authorization,
            push.body,
            timeout_ms,
            push.socket_timeout_ms,
            push.may_begin,
            push.witness,
        )
        if push.witness is not None:
            push.witness.lines = token.authorization
        self._inner.send(with_token, partial(self._on_outcome, waiting, shared, token))

    def _on_outcome(
        self, waiting: _WaitingPush, shared: SharedToken, token: Token, outcome: SendOutcome
    ) -> None:
        if outcome.status != UNAUTHORIZED:
            if outcome.failure is None:
                shared.slot.accept(token.number)
            waiting.done(outcome)
            return
        shared.slot.reject(token.number)
        self._note_refused(waiting.push.route.origin, token.number)
        if waiting.first is not None:
            # A new token was no better: the consumer's own back-off is next.
            waiting.done(outcome)
            return
        waiting.first = outcome
        self._wait(waiting)

    def _note_refused(self, origin: Origin, number: int) -> None:
        number = max(number, self._refused.pop(origin, 0))
        if len(self._refused) >= _ORIGINS_MAX:
            del self._refused[next(iter(self._refused))]
        self._refused[origin] = number

    def _wait(self, waiting: _WaitingPush) -> None:
        """Go on with the push when there is a token."""
        push, done, first = waiting.push, waiting.done, waiting.first

        def go_on(found: _Found) -> None:
            left_s = waiting.deadline_s - self._tokens.now_s()
            if isinstance(found, SendOutcome):
                # Of the two, the endpoint's answer says more than that there was no other token.
                is_closed = found.failure is Failure.CLOSED
                done(found if first is None or is_closed else first)
            elif left_s <= _TIME_LEFT_S_MIN:
                done(first or self._no_token(push))
            elif not may_begin(push):
                done(NOT_BEGUN)
            else:
                self._push(waiting, max(1, int(left_s * 1_000)), *found)

        async def wait() -> SendOutcome | None:
            # The push begins in here: what a sender below raises is no end of the others.
            go_on(await self._token_until(push, waiting.deadline_s))
            return None

        def tell(ended: SendOutcome | None) -> None:
            if ended is not None:
                go_on(ended)

        closed: SendOutcome | None = SendOutcome(0, "", Failure.CLOSED)
        overloaded: SendOutcome | None = SendOutcome(
            0, "", Failure.OVERLOADED, "too many pushes wait for tokens"
        )
        self._tasks.start(
            wait,
            tell,
            closed=closed,
            overloaded=overloaded,
            broken=lambda error: SendOutcome(
                0, "", Failure.CLOSED, f"the sender failed: {type(error).__name__}"
            ),
            subscription=push.route.subscription,
        )

    async def _token_until(self, push: Push, deadline_s: float) -> "_Found":
        with trio.move_on_after(deadline_s - self._tokens.now_s()):
            while True:
                shared = self._current()
                # Looked for again: the provider may be made, or changed, meanwhile.
                with trio.move_on_after(_LOOKED_FOR_EACH_S):
                    if shared is not None:
                        after = self._refused.get(push.route.origin, 0)
                        return shared, await self._tokens.get(shared, after)
                    await trio.sleep_forever()
        return self._no_token(push)

    def _no_token(self, push: Push) -> SendOutcome:
        detail = self.trouble or f"none within {push.request_timeout_ms / 1_000:g} s"
        return SendOutcome(0, "", Failure.TOKENLESS, detail)

    def _current(self) -> SharedToken | None:
        """Return the shared token of the credentials as they are now, for the provider may have
        changed; None without a provider.
        """
        provider = self._provider_of(self._policy.provider_name)
        if provider is not self._provider:
            self._provider = provider
            self._shared = None
            if provider is not None:
                self._shared = self._tokens.of(OAuthCredentials(provider, self._policy))
        return self._shared


def _names_its_sender(push: Push) -> bool:
    return b"\r\nauthorization:" in b"\r\n" + push.lines.lower()
