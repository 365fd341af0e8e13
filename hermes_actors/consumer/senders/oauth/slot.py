"""When a token is asked for, used and given up. Pure: no waiting, time is an argument.

A token is asked for early, while the one before is still good, so that no push waits for it and no
push carries one that has run out. A 401 says that a token is no good after all. Between two
requests that brought nothing usable lies a delay, from the provider's initial one, doubled up to
its greatest. There are two: that after requests which failed ends with one that succeeds, that
after tokens which an endpoint refused ends with one that it accepts.
"""

from msgspec import Struct

from hermes_actors.model.redaction import hidden_bytes, redacted

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
