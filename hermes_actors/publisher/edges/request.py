"""The head of one request, the same for HTTP/1.1 and HTTP/2."""

from collections.abc import Mapping
from urllib.parse import unquote

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import Refused
from hermes_actors.publisher.demands import Head, head_refusal
from hermes_actors.publisher.status import origin_form, published_to


class Request:
    """A request without its body, with everything that its head determines.

    `topic` is the topic that it publishes to, a batch or a single message, unless `is_page`.
    `expected_bytes` is the announced size of its body, CHUNKED or ABSENT. `refusal` is the error if
    its head is above a limit. Identical requests may share one object.
    """

    def __init__(
        self,
        config: FrontendConfig,
        version: str,
        method: str,
        target: str,
        pairs: list[tuple[bytes, bytes]],
        fields: Mapping[bytes, bytes],
        expected_bytes: int,
        *,
        keeps_alive: bool = True,
    ) -> None:
        """`version` is the HTTP version; `keeps_alive`: the connection may have another request."""
        self.version = version
        self.method = method
        self.target = target
        self.pairs = pairs
        self.fields = fields
        self.expected_bytes = expected_bytes
        self.keeps_alive = keeps_alive
        path, _, self.query = target.partition("?")
        if not path.startswith("/"):
            path = origin_form(path)
        self.path = path = unquote(path) if "%" in path else path
        self.refusal: Refused | None = head_refusal(config, path, self.query, pairs)
        self.expects_continue = (
            b"expect" in fields
            and version != "1.0"
            and fields[b"expect"].lower() == b"100-continue"
        )
        published = published_to(method, path)
        self.is_page = published is None
        self.topic, self.is_batch = published or ("", False)
        self.key = fields.get(b"partition-key")
        self.head = Head(pairs, fields)

    def is_bare(self, status: int) -> bool:
        """True if an answer with this status has no body, whatever its length header says."""
        return self.method == "HEAD" or status in (204, 304)
