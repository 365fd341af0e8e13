"""Pushes with `Authorization: Bearer` of the subscription's oAuthPolicy, over any sender.

A push without a token waits for one within its own time-out, and then fails as a failure of the
node's own. After a 401 it goes out once more, with the next token.
"""

from collections.abc import Callable
from functools import partial

import trio
from msgspec.structs import replace

from hermes_actors.consumer.senders.oauth.request import OAuthCredentials, pushed
from hermes_actors.consumer.senders.oauth.tokens import Token, Tokens, TokenSource
from hermes_actors.consumer.senders.push_tasks import PushTasks
from hermes_actors.consumer.senders.sender import (
    NOT_BEGUN,
    Done,
    Failure,
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
_PROVIDER_LOOKED_FOR_S = 1.0

ProviderOf = Callable[[str], OAuthProvider | None]


class OAuthSender(Sender):
    """Keeps `Sender`'s promise over `inner`. One for each version of a subscription.

    A push with credentials of its endpoint goes out as it is.
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
        self._known_source: TokenSource | None = None
        self._refused = 0

    @property
    def trouble(self) -> str:
        """Why there is no token now; "" when there is one, or nobody has asked yet."""
        name, source = self._policy.provider_name, self._source()
        if source is None:
            return f"OAuth provider {name} does not exist"
        if source.current(self._refused) is not None:
            return ""
        if source.problem:
            return f"OAuth provider {name} gives no token: {source.problem}"
        if self._refused:
            return f"the endpoint does not take the token of OAuth provider {name}"
        return f"waits for a token of OAuth provider {name}" if source.is_asking else ""

    def send(self, push: Push, done: Done) -> None:
        """Start the push; `done` is called exactly once, later."""
        if b"\r\nauthorization:" in b"\r\n" + push.lines.lower():
            self._inner.send(push, done)
            return
        source = self._source()
        token = None if source is None else source.current(self._refused)
        deadline_s = trio.current_time() + push.request_timeout_ms / 1_000
        if source is None or token is None:
            self._wait(push, deadline_s, None, done)
            return
        source.renew()
        on_outcome = partial(self._on_outcome, source, token, push, deadline_s, done)
        self._inner.send(_with(token, push, push.request_timeout_ms), on_outcome)

    def forget(self, subscription: str) -> None:
        """End all pushes of the subscription with CLOSED, those that wait for a token too."""
        self._tasks.forget(subscription)
        self._inner.forget(subscription)

    def probe(self, route: PushRoute, done: Probed) -> bool:
        """As `inner` does: a connection needs no token."""
        return self._inner.probe(route, done)

    def _on_outcome(
        self,
        source: TokenSource,
        token: Token,
        push: Push,
        deadline_s: float,
        done: Done,
        outcome: SendOutcome,
    ) -> None:
        if self._note(source, token, outcome):
            self._wait(push, deadline_s, outcome, done)
        else:
            done(outcome)

    def _wait(self, push: Push, deadline_s: float, first: SendOutcome | None, done: Done) -> None:
        work = partial(self._push_with_a_new_token, push, deadline_s, first)
        self._tasks.start(push.route.subscription, work, done)

    async def _push_with_a_new_token(
        self, push: Push, deadline_s: float, first: SendOutcome | None
    ) -> SendOutcome:
        """`first` is the 401 that the push has got before."""
        found: tuple[TokenSource, Token] | None = None
        with trio.move_on_at(deadline_s):
            found = await self._next_token()
        left_ms = int((deadline_s - trio.current_time()) * 1_000)
        if found is None or left_ms < 1:
            detail = self.trouble or f"none within {push.request_timeout_ms / 1_000:g} s"
            return first or SendOutcome(0, "", Failure.TOKENLESS, detail)
        if not may_begin(push):
            return NOT_BEGUN
        outcome = await pushed(self._inner, _with(found[1], push, left_ms))
        if self._note(*found, outcome) and first is None:
            return await self._push_with_a_new_token(push, deadline_s, outcome)
        return outcome

    async def _next_token(self) -> tuple[TokenSource, Token]:
        while True:
            # Looked for again: the provider may be made, or changed, meanwhile.
            source = self._source()
            with trio.move_on_after(_PROVIDER_LOOKED_FOR_S):
                if source is not None:
                    return source, await source.get(self._refused)
                await trio.sleep_forever()

    def _note(self, source: TokenSource, token: Token, outcome: SendOutcome) -> bool:
        """Note what the endpoint made of the token; True if it was refused."""
        if outcome.status == UNAUTHORIZED:
            source.refuse(token.number)
            # Of this subscription only: others may still be well served by it.
            self._refused = max(self._refused, token.number)
            return True
        if outcome.failure is None:
            source.accept(token.number)
        return False

    def _source(self) -> TokenSource | None:
        """The token source of the provider as it is now; None without a provider."""
        provider = self._provider_of(self._policy.provider_name)
        if provider is not self._provider:
            self._provider = provider
            self._refused = 0
            self._known_source = None
            if provider is not None:
                self._known_source = self._tokens.of(OAuthCredentials(provider, self._policy))
        return self._known_source


def _with(token: Token, push: Push, timeout_ms: int) -> Push:
    if push.witness is not None:
        push.witness.lines = token.authorization
    return replace(push, lines=push.lines + token.authorization, request_timeout_ms=timeout_ms)
