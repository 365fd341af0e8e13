"""What is taken of a request before anybody reads it: how many headers, how long, at which path."""

import logging
import math
from collections.abc import Sequence, Sized

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.publisher.answers import Answer, error_answer

_SAID_EACH_S = 60.0
_logger = logging.getLogger(__name__)


class HeadLimits:
    """The limits that both servers keep alike, whatever their own are."""

    def __init__(self, config: FrontendConfig) -> None:
        self._headers_max = config.headers_max
        self._header_bytes_max = config.header_bytes_max
        self._url_bytes_max = config.url_bytes_max

    def refusal(
        self, path: Sized, query: Sized, pairs: Sequence[tuple[Sized, Sized]]
    ) -> Refused | None:
        """Why a request is refused before its body; None when its head is within the limits."""
        if len(pairs) > self._headers_max:
            # Undertow's status, for Hermes' clients.
            return Refused(
                f"The request has {len(pairs)} headers; this server takes at most "
                f"{self._headers_max} (frontend.headers_max); send fewer, or have that raised"
            )
        url_bytes = len(path) + len(query)
        if url_bytes > self._url_bytes_max:
            return _too_long("path and query", url_bytes, "url_bytes_max", self._url_bytes_max, 414)
        header_bytes = sum([len(name) + len(value) for name, value in pairs])
        if header_bytes > self._header_bytes_max:
            bytes_max = self._header_bytes_max
            return _too_long("headers", header_bytes, "header_bytes_max", bytes_max, 431)
        return None


def _too_long(what: str, size: int, setting: str, bytes_max: int, status: int) -> Refused:
    return Refused(
        f"The request's {what} have {size} bytes; this server takes at most {bytes_max} "
        f"(frontend.{setting}); send less, or have that raised",
        ErrorCode.VALIDATION_ERROR,
        status,
    )


class RefusedHeads:
    """Answers requests whose head is above a limit, and tells the log, a line a minute at most:
    whoever sends such heads sends many.
    """

    def __init__(self) -> None:
        self._said_s = -math.inf
        self._unsaid = 0

    def answer(self, refusal: Refused, now_s: float) -> Answer:
        """The answer that says why, after which the connection is closed."""
        if now_s - self._said_s < _SAID_EACH_S:
            self._unsaid += 1
        else:
            more = f"; {self._unsaid} more heads were refused since this was said last"
            _logger.warning("Refused: %s%s", refusal.message, more if self._unsaid else "")
            self._said_s, self._unsaid = now_s, 0
        return error_answer(refusal, "", closes=True)
