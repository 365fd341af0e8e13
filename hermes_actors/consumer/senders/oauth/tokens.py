"""The tokens of a node: one for equal credentials, one request for it at a time.

A token is renewed while the one before is still good, so no push waits for it and none carries an
expired one. After a request without a token, or a token that an endpoint refused, the next request
waits for the provider's delay, which doubles up to its maximum until an endpoint accepts a token.
"""

import logging
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

import trio
from msgspec import Struct

from hermes_actors.consumer.senders.oauth.request import Grant, OAuthCredentials, TokenDenied
from hermes_actors.consumer.senders.push_tasks import PushTasks
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.model.redaction import hidden_bytes, redacted
from hermes_actors.telemetry.metrics import Metrics

MARGIN_SHARE = 0.2
MARGIN_S_MAX = 60.0
"""A token is renewed when a fifth of its life is left, at most a minute."""

DELAY_S_MIN = 0.1

_logger = logging.getLogger(__name__)

Ask = Callable[[OAuthCredentials], Awaitable[Grant]]


class Token(Struct, frozen=True):
    """A token. `authorization` is its header line. A later token has a greater `number`."""

    number: int
    authorization: bytes
    expires_s: float
    renewed_s: float

    def __repr__(self) -> str:
        return redacted(self, authorization=hidden_bytes(self.authorization))


NO_TOKEN = Token(0, b"", 0.0, 0.0)


class TokenSource:
    """The token of one set of credentials. `problem` is why the last request brought none.

    `after` is the number of the last token that an endpoint has refused.
    """

    def __init__(self, credentials: OAuthCredentials, tokens: "Tokens") -> None:
        provider = credentials.provider
        self._credentials = credentials
        self._tokens = tokens
        self._delay_s_min = max(provider.token_request_initial_delay / 1_000, DELAY_S_MIN)
        self._delay_s_max = max(provider.token_request_max_delay / 1_000, self._delay_s_min)
        self._delay_s = self._delay_s_min
        self._allowed_s = float("-inf")
        self._got_s = float("-inf")
        self._token = NO_TOKEN
        self._refused = self._accepted = 0
        self._changed = trio.Event()
        self.is_asking = False
        self.problem = ""

    def current(self, after: int = 0) -> Token | None:
        """The token to use now, if there is one later than `after`."""
        token = self._token
        return token if token.number > after and trio.current_time() < token.expires_s else None

    async def get(self, after: int = 0) -> Token:
        """Wait for a token that is later than `after`."""
        while (token := self.current(after)) is None:
            self._ask()
            await self._changed.wait()
        return token

    def renew(self) -> None:
        """Ask for the next token if the current one expires soon. Does not wait."""
        if trio.current_time() >= self._token.renewed_s:
            self._ask()

    def refuse(self, number: int) -> None:
        """Note that an endpoint did not accept the token of this number."""
        if number == self._token.number and number != self._refused:
            self._refused = number
            self._defer(self._got_s)

    def accept(self, number: int) -> None:
        """Note that an endpoint accepted the token of this number."""
        if number != self._accepted:
            self._accepted = number
            self._delay_s = self._delay_s_min

    def _defer(self, since_s: float) -> None:
        self._allowed_s = max(self._allowed_s, since_s + self._delay_s)
        self._delay_s = min(self._delay_s * 2, self._delay_s_max)

    def _ask(self) -> None:
        if not self.is_asking:
            self.is_asking = True
            self._tokens.tasks.start("", self._request, self._on_end)

    async def _request(self) -> SendOutcome:
        await trio.sleep(max(0.0, self._allowed_s - trio.current_time()))
        name, began_s = self._credentials.provider.name, trio.current_time()
        result = "denied"
        try:
            grant = await self._tokens.ask(self._credentials)
        except TokenDenied as error:
            if str(error) != self.problem:
                _logger.warning("OAuth provider %s gave no token: %s", name, error)
            self.problem = str(error)
            self._defer(trio.current_time())
        else:
            if self.problem:
                _logger.info("OAuth provider %s gives tokens again", name)
            self.problem, result = "", "granted"
            self._take(grant, began_s)
        self._tokens.count(name, result, trio.current_time() - began_s)
        return SendOutcome(200)

    def _take(self, grant: Grant, began_s: float) -> None:
        margin_s = min(grant.lifetime_s * MARGIN_SHARE, MARGIN_S_MAX)
        line = b"Authorization: Bearer %b\r\n" % grant.access_token.encode("ascii")
        expires_s = began_s + grant.lifetime_s
        self._token = Token(self._token.number + 1, line, expires_s, expires_s - margin_s)
        self._got_s = trio.current_time()
        self._allowed_s = self._got_s + DELAY_S_MIN

    def _on_end(self, outcome: SendOutcome) -> None:
        self.is_asking = False
        if outcome.failure is not None:
            # A defect, or too many other requests are under way.
            self.problem = outcome.reason()
            self._defer(trio.current_time())
        changed, self._changed = self._changed, trio.Event()
        changed.set()


class Tokens:
    """Token sources by credentials. `ask` makes a request within the provider's time-out; `tasks`
    bounds how many are under way.
    """

    def __init__(self, tasks: PushTasks, ask: Ask, metrics: Metrics) -> None:
        self.tasks = tasks
        self.ask = ask
        self._metrics = metrics
        # The senders that use a source hold it.
        self._sources: WeakValueDictionary[OAuthCredentials, TokenSource] = WeakValueDictionary()

    def of(self, credentials: OAuthCredentials) -> TokenSource:
        """The source for these credentials. Keep it while using it."""
        source = self._sources.get(credentials)
        if source is None:
            source = self._sources[credentials] = TokenSource(credentials, self)
        return source

    def count(self, provider: str, result: str, latency_s: float) -> None:
        """Count a token request."""
        self._metrics.timer("oauth_token_request_latency", provider=provider).observe(latency_s)
        self._metrics.counter("oauth_token_requests", provider=provider, result=result).add()
