"""What is taken of a request before anybody reads it: how many headers, how long, at which path."""

from collections.abc import Sequence, Sized

from hermes_actors.config import FrontendConfig
from hermes_actors.publisher.answers import BAD_REQUEST, Answer

_URI_TOO_LONG = Answer(414, closes=True)
_HEADERS_TOO_LARGE = Answer(431, closes=True)


class HeadLimits:
    """The limits that both servers keep alike, whatever their own are."""

    def __init__(self, config: FrontendConfig) -> None:
        self._headers_max = config.headers_max
        self._header_bytes_max = config.header_bytes_max
        self._url_bytes_max = config.url_bytes_max

    def refusal(
        self, path: Sized, query: Sized, pairs: Sequence[tuple[Sized, Sized]]
    ) -> Answer | None:
        """The answer to a request that is too large before its body; None when it is not."""
        if len(pairs) > self._headers_max:
            return BAD_REQUEST
        if len(path) + len(query) > self._url_bytes_max:
            return _URI_TOO_LONG
        if sum([len(name) + len(value) for name, value in pairs]) > self._header_bytes_max:
            return _HEADERS_TOO_LARGE
        return None
