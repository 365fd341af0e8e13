"""The tokens of a node: shared by all with equal credentials, one request at a time for them.

A token is asked for early, while the one before is still good, so that no push waits for it and no
push carries one that has run out. A 401 says that a token is no good after all. Between two
requests that brought nothing usable lies a delay, from the provider's initial one, doubled up to
its greatest. There are two: that after requests which failed ends with one that succeeds, that
after tokens which an endpoint refused ends with one that it accepts.
"""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import assert_never
from weakref import WeakValueDictionary

import trio
from msgspec import Struct

from hermes_actors.consumer.senders.oauth.wire import Answer, Denied, Granted, OAuthCredentials
from hermes_actors.consumer.senders.push_tasks import PushTasks
from hermes_actors.model.redaction import hidden_bytes, redacted
from hermes_actors.telemetry.metrics import Metrics

MARGIN_SHARE = 0.2
MARGIN_S_MAX = 60.0
"""A token is renewed when a fifth of its life is left, or a minute of a long one."""

BETWEEN_S_MIN = 0.1
"""The least time between two requests, whatever the provider's delays and lifetimes say."""


class Token(Struct, frozen=True):
    """A token. `authorization` is its header line, ended by CRLF; `number` tells it from others,
    and is greater than those of earlier ones. It is not used from `expires_s` on.
    """

    number: int
    authorization: bytes
    expires_s: float
    renewed_s: float

    def __repr__(self) -> str:
        return redacted(self, authorization=hidden_bytes(self.authorization))


class TokenSlot:
    """The token of one set of credentials. `problem` is why the last request brought none.

    `after` is the number of the last token that whoever asks has seen refused.
    """

    def __init__(self, initial_delay_s: float, delay_s_max: float) -> None:
        self._initial_delay_s = max(initial_delay_s, BETWEEN_S_MIN)
        self._delay_s_max = max(delay_s_max, self._initial_delay_s)
        self._failed_delay_s = self._refused_delay_s = self._initial_delay_s
        self._token: Token | None = None
        self._got_s = float("-inf")
        self._rejected = 0
        self._asked_s = float("-inf")
        self.is_asking = False
        self.allowed_s = float("-inf")
        self.problem = ""

    def token(self, now_s: float, after: int = 0) -> Token | None:
        """The token to use now; None when there is none, or none that is later than `after`."""
        token = self._token
        if token is None or token.number <= after or now_s >= token.expires_s:
            return None
        return token

    def is_wanted(self, now_s: float, after: int = 0) -> bool:
        """True when a token is to be asked for now: none is there, or it will soon run out."""
        if self.is_asking or now_s < self.allowed_s:
            return False
        token = self.token(now_s, after)
        return token is None or now_s >= token.renewed_s

    def begin(self, now_s: float) -> None:
        """Note that a token is being asked for."""
        assert not self.is_asking, "one request at a time"
        self.is_asking = True
        self._asked_s = now_s

    def succeed(
        self, now_s: float, number: int, authorization: bytes, lifetime_s: float | None
    ) -> None:
        """Take the token that was given. Its life began no later than when it was asked for."""
        self.is_asking = False
        self.problem = ""
        life_s = float("inf") if lifetime_s is None else lifetime_s
        expires_s = self._asked_s + life_s
        margin_s = min(life_s * MARGIN_SHARE, MARGIN_S_MAX)
        self._token = Token(number, authorization, expires_s, expires_s - margin_s)
        self._got_s = now_s
        self.allowed_s = now_s + BETWEEN_S_MIN
        self._failed_delay_s = self._initial_delay_s

    def fail(self, now_s: float, problem: str) -> None:
        """Note that no token was given. One that is still good goes on being used."""
        self.is_asking = False
        self.problem = problem
        self.allowed_s = max(self.allowed_s, now_s + self._failed_delay_s)
        self._failed_delay_s = min(self._failed_delay_s * 2, self._delay_s_max)

    def reject(self, number: int) -> None:
        """Note that an endpoint did not take the token of this number: another one is to be asked
        for.

        At once for a token that has served for a while; for one that was just got after a delay.
        """
        if self._token is not None and self._token.number == number and self._rejected != number:
            self._rejected = number
            self.allowed_s = max(self.allowed_s, self._got_s + self._refused_delay_s)
            self._refused_delay_s = min(self._refused_delay_s * 2, self._delay_s_max)

    def accept(self, number: int) -> None:
        """Note that an endpoint took the token of this number."""
        if self._token is not None and self._token.number == number:
            self._refused_delay_s = self._initial_delay_s


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
