"""The tokens of a node: shared by all with equal credentials, one request at a time for them."""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import assert_never
from weakref import WeakValueDictionary

import trio

from hermes_actors.consumer.senders.oauth.slot import Token, TokenSlot
from hermes_actors.consumer.senders.oauth.wire import Answer, Denied, Granted, OAuthCredentials
from hermes_actors.consumer.senders.push_tasks import PushTasks
from hermes_actors.telemetry.metrics import Metrics

TOKENS_KEPT_MAX = 1_000
"""Tokens that are remembered beyond the senders that use them."""

_logger = logging.getLogger(__name__)

Ask = Callable[[OAuthCredentials], Awaitable[Answer]]


class SharedToken:
    """The slot of one set of credentials, and the event of its next change."""

    def __init__(self, credentials: OAuthCredentials) -> None:
        provider = credentials.provider
        self.credentials = credentials
        self.slot = TokenSlot(
            provider.token_request_initial_delay / 1_000, provider.token_request_max_delay / 1_000
        )
        self.changed = trio.Event()

    def tell(self) -> None:
        """Wake all who wait for the token."""
        self.changed.set()
        self.changed = trio.Event()


class Tokens:
    """Tokens by credentials. `ask` makes a request, and ends within the provider's time-out; it is
    one of the `tasks`.
    """

    def __init__(
        self,
        tasks: PushTasks,
        ask: Ask,
        metrics: Metrics,
        *,
        now_s: Callable[[], float] = trio.current_time,
        kept_max: int = TOKENS_KEPT_MAX,
    ) -> None:
        self._tasks = tasks
        self._ask = ask
        self._metrics = metrics
        self._kept_max = kept_max
        self._number = 0
        self._is_closed = False
        self.now_s = now_s
        # Whoever uses a token holds it, so there are never two for equal credentials.
        self._used: WeakValueDictionary[OAuthCredentials, SharedToken] = WeakValueDictionary()
        self._kept: OrderedDict[OAuthCredentials, SharedToken] = OrderedDict()

    def of(self, credentials: OAuthCredentials) -> SharedToken:
        """The token of these credentials, made for whoever asks first. Keep it while using it."""
        shared = self._used.get(credentials)
        if shared is None:
            shared = self._used[credentials] = SharedToken(credentials)
        self._kept[credentials] = shared
        self._kept.move_to_end(credentials)
        if len(self._kept) > self._kept_max:
            self._kept.popitem(last=False)
        return shared

    def hasten(self, shared: SharedToken, after: int = 0) -> None:
        """Ask for a token if it is time to. Does not wait."""
        now_s = self.now_s()
        if not self._is_closed and shared.slot.is_wanted(now_s, after):
            shared.slot.begin(now_s)
            denied: Answer = Denied("")
            self._tasks.start(
                partial(self._ask, shared.credentials),
                partial(self._on_answer, shared, now_s),
                closed=denied,
                overloaded=Denied("too many other token requests are under way"),
                broken=lambda error: Denied(f"the request failed: {type(error).__name__}"),
            )

    async def get(self, shared: SharedToken, after: int = 0) -> Token:
        """A token that is later than `after`, however long that takes. A trio coroutine."""
        while True:
            changed, slot = shared.changed, shared.slot
            token = slot.token(self.now_s(), after)
            if token is not None:
                return token
            self.hasten(shared, after)
            is_under_way = slot.is_asking or self._is_closed
            wait_s = float("inf") if is_under_way else max(0.0, slot.allowed_s - self.now_s())
            with trio.move_on_after(wait_s):
                await changed.wait()

    def close(self) -> None:
        """Ask for no more tokens."""
        self._is_closed = True

    def _on_answer(self, shared: SharedToken, began_s: float, answer: Answer) -> None:
        name, now_s = shared.credentials.provider.name, self.now_s()
        latency = self._metrics.timer("oauth_token_request_latency", provider=name)
        latency.observe(now_s - began_s)
        slot = shared.slot
        match answer:
            case Granted(access_token, lifetime_s):
                result = "granted"
                self._number += 1
                line = b"Authorization: Bearer %b\r\n" % access_token.encode("ascii")
                if slot.problem:
                    _logger.info("OAuth provider %s gives tokens again", name)
                slot.succeed(now_s, self._number, line, lifetime_s)
            case Denied(problem):
                result = "denied"
                if problem and problem != slot.problem:
                    _logger.warning("OAuth provider %s gave no token: %s", name, problem)
                slot.fail(now_s, problem)
            case _:
                assert_never(answer)
        self._metrics.counter("oauth_token_requests", provider=name, result=result).add()
        shared.tell()
