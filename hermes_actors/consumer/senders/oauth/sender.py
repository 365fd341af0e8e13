"""Adds `Authorization: Bearer` by the subscription's oAuthPolicy to pushes over any sender.

A push without a token waits for one within its own time-out, then fails as a local failure. After a
401 it is sent once more, with the next token.

A token is renewed while the previous one is still valid, so no push waits for the renewal and none
carries an expired token. After a failed request, or a token that the endpoint refused, the next
request waits for the provider's delay, which doubles up to its maximum until the endpoint accepts a
token.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial

import trio
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.consumer.senders.oauth.request import (
    Grant,
    OAuthCredentials,
    TokenDenied,
    pushed,
)
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
from hermes_actors.model.redaction import hidden_bytes, redacted
from hermes_actors.model.subscription import OAuthPolicy
from hermes_actors.telemetry.metrics import Metrics

UNAUTHORIZED = 401
MARGIN_SHARE = 0.2
MARGIN_S_MAX = 60.0
"""A token is renewed when a fifth of its life is left, but at most a minute before its end."""

DELAY_S_MIN = 0.1
_PROVIDER_LOOKED_FOR_S = 1.0

_logger = logging.getLogger(__name__)

Ask = Callable[[OAuthCredentials], Awaitable[Grant]]
ProviderOf = Callable[[str], OAuthProvider | None]


class TokenRequests(Struct, frozen=True):
    """How to get tokens. `provider_of` finds a provider by its name; `ask` makes a request within
    the provider's time-outs; `tasks` bounds the requests and the pushes that wait for them.
    """

    provider_of: ProviderOf
    ask: Ask
    tasks: PushTasks
    metrics: Metrics


class _Token(Struct, frozen=True):
    """A token. `authorization` is its header line."""

    authorization: bytes
    got_s: float
    expires_s: float
    renewed_s: float

    def __repr__(self) -> str:
        return redacted(self, authorization=hidden_bytes(self.authorization))


class OAuthSender(Sender):
    """Keeps `Sender`'s contract over `inner`. One for each version of a subscription.

    A push that already has the endpoint's credentials is sent unchanged.
    """

    def __init__(self, inner: Sender, policy: OAuthPolicy, requests: TokenRequests) -> None:
        self._inner = inner
        self._policy = policy
        self._requests = requests
        self._tasks = requests.tasks
        self._is_asking = False
        self._changed = trio.Event()
        self._adopt(None)

    def _adopt(self, provider: OAuthProvider | None) -> None:
        """Start afresh with a provider that was created or changed."""
        self._provider = provider
        self._token: _Token | None = None
        self._problem = ""
        self._is_refused = False
        self._delay_s = 0.0
        self._allowed_s = float("-inf")

    @property
    def trouble(self) -> str:
        """Why there is no token now. Empty string if there is one, or none was needed yet."""
        name, token = self._policy.provider_name, self._current()
        if self._provider is None:
            return f"OAuth provider {name} does not exist"
        if token is not None:
            return ""
        if self._problem:
            return f"OAuth provider {name} gives no token: {self._problem}"
        if self._is_refused:
            return f"the endpoint does not take the token of OAuth provider {name}"
        return f"waits for a token of OAuth provider {name}" if self._is_asking else ""

    def send(self, push: Push, done: Done) -> None:
        """Start the push; `done` is called exactly once, later."""
        if b"\r\nauthorization:" in b"\r\n" + push.lines.lower():
            self._inner.send(push, done)
            return
        token, now_s = self._current(), trio.current_time()
        deadline_s = now_s + push.request_timeout_ms / 1_000
        if token is None:
            self._wait(push, deadline_s, None, done)
            return
        if now_s >= token.renewed_s:
            self._ask()
        on_outcome = partial(self._on_outcome, token, push, deadline_s, done)
        self._inner.send(_with(token, push, push.request_timeout_ms), on_outcome)

    def forget(self, subscription: str) -> None:
        """End all pushes of the subscription with CLOSED, also those that wait for a token."""
        self._tasks.forget(subscription)
        self._inner.forget(subscription)

    def after_outcomes(self, callback: Callable[[], None]) -> None:
        """As `inner` does."""
        self._inner.after_outcomes(callback)

    def probe(self, route: PushRoute, done: Probed) -> bool:
        """As `inner` does: a connection needs no token."""
        return self._inner.probe(route, done)

    def _on_outcome(
        self, token: _Token, push: Push, deadline_s: float, done: Done, outcome: SendOutcome
    ) -> None:
        if self._is_refused_by(outcome, token):
            self._wait(push, deadline_s, outcome, done)
        else:
            done(outcome)

    def _wait(self, push: Push, deadline_s: float, first: SendOutcome | None, done: Done) -> None:
        if self._current() is None:
            # Request first, because waiting pushes may use up the task limit.
            self._ask()
        work = partial(self._push_with_a_new_token, push, deadline_s, first)
        self._tasks.start(push.route.subscription, work, done)

    async def _push_with_a_new_token(
        self, push: Push, deadline_s: float, first: SendOutcome | None
    ) -> SendOutcome:
        """`first` is the 401 that the push got before."""
        token: _Token | None = None
        with trio.move_on_at(deadline_s):
            while (token := self._current()) is None:
                self._ask()
                # Checked again, because the provider may have been created or changed.
                with trio.move_on_after(_PROVIDER_LOOKED_FOR_S):
                    await self._changed.wait()
        left_ms = int((deadline_s - trio.current_time()) * 1_000)
        if token is None or left_ms < 1:
            detail = self.trouble or f"none within {push.request_timeout_ms / 1_000:g} s"
            return first or SendOutcome(0, "", Failure.TOKENLESS, detail)
        if not may_begin(push):
            return NOT_BEGUN
        outcome = await pushed(self._inner, _with(token, push, left_ms))
        if self._is_refused_by(outcome, token) and first is None:
            return await self._push_with_a_new_token(push, deadline_s, outcome)
        return outcome

    def _is_refused_by(self, outcome: SendOutcome, token: _Token) -> bool:
        """Note what the endpoint answered to the token; True if it refused it."""
        is_refused = outcome.status == UNAUTHORIZED
        if token is not self._token:
            return is_refused
        if is_refused:
            self._token, self._is_refused = None, True
            self._defer(token.got_s)
        elif outcome.failure is None:
            self._is_refused, self._delay_s = False, 0.0
        return is_refused

    def _current(self) -> _Token | None:
        """The token to use now, if there is one from the provider's current version."""
        provider = self._requests.provider_of(self._policy.provider_name)
        if provider is not self._provider:
            self._adopt(provider)
        token = self._token
        return token if token is not None and trio.current_time() < token.expires_s else None

    def _defer(self, since_s: float) -> None:
        provider = self._provider
        assert provider is not None, "it was asked"
        first_s = max(provider.token_request_initial_delay / 1_000, DELAY_S_MIN)
        last_s = max(provider.token_request_max_delay / 1_000, first_s)
        self._delay_s = min(max(self._delay_s * 2, first_s), last_s)
        self._allowed_s = max(self._allowed_s, since_s + self._delay_s)

    def _ask(self) -> None:
        if not self._is_asking and self._provider is not None:
            self._is_asking = True
            self._tasks.start("", partial(self._request, self._provider), self._on_end)

    async def _request(self, provider: OAuthProvider) -> SendOutcome:
        await trio.sleep(max(0.0, self._allowed_s - trio.current_time()))
        began_s = trio.current_time()
        problem, grant = "", None
        try:
            grant = await self._requests.ask(OAuthCredentials(provider, self._policy))
        except TokenDenied as error:
            problem = str(error)
        took_s, metrics = trio.current_time() - began_s, self._requests.metrics
        metrics.timer("oauth_token_request_latency", provider=provider.name).observe(took_s)
        result = "denied" if grant is None else "granted"
        metrics.counter("oauth_token_requests", provider=provider.name, result=result).add()
        if provider is self._provider:
            self._take(problem, grant, began_s)
        return SendOutcome(200)

    def _take(self, problem: str, grant: Grant | None, began_s: float) -> None:
        name = self._policy.provider_name
        if problem and problem != self._problem:
            _logger.warning("OAuth provider %s gave no token: %s", name, problem)
        elif self._problem and not problem:
            _logger.info("OAuth provider %s gives tokens again", name)
        self._problem = problem
        if grant is None:
            self._defer(trio.current_time())
            return
        margin_s = min(grant.lifetime_s * MARGIN_SHARE, MARGIN_S_MAX)
        line = b"Authorization: Bearer %b\r\n" % grant.access_token.encode("ascii")
        expires_s, now_s = began_s + grant.lifetime_s, trio.current_time()
        self._token = _Token(line, now_s, expires_s, expires_s - margin_s)
        self._allowed_s = now_s + DELAY_S_MIN

    def _on_end(self, outcome: SendOutcome) -> None:
        self._is_asking = False
        if outcome.failure is not None and self._provider is not None:
            # A bug, or too many other requests are under way.
            self._problem = outcome.reason()
            self._defer(trio.current_time())
            return  # A waiting push requests it again in a second.
        changed, self._changed = self._changed, trio.Event()
        changed.set()


def _with(token: _Token, push: Push, timeout_ms: int) -> Push:
    if push.witness is not None:
        push.witness.lines = token.authorization
    return replace(push, lines=push.lines + token.authorization, request_timeout_ms=timeout_ms)
