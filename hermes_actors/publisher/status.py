"""The frontend's pages beside publishing, and which path is what: the same on every edge."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from hermes_actors.publisher.answers import JSON, NOT_FOUND, Answer
from hermes_actors.publisher.drain import Drain
from hermes_actors.status.dependencies import PROBES, notices, reasons, shown

TOPICS = "/topics/"
BATCH = "batch"
_BATCH = "/" + BATCH
_PLAIN = "text/plain"
_PROMETHEUS = "text/plain;version=0.0.4;charset=utf-8"
_UP = Answer(200, body=b"UP", content_type=_PLAIN)
_SHUTDOWN = Answer(503, body=b"SHUTDOWN", content_type=_PLAIN)
_READY = Answer(200, body=b"READY", content_type=_PLAIN)
_NOT_READY = Answer(503, body=b"NOT_READY", content_type=_PLAIN)
_ONLY_POST = Answer(405, headers=(("allow", "POST"),))
_ONLY_GET = Answer(405, headers=(("allow", "GET, HEAD"),))


def published_to(method: str, path: str) -> tuple[str, bool] | None:
    """The topic that this request publishes to, "" for none named, and whether it is a batch; None:
    a page's request. One trailing slash is ignored.
    """
    if method != "POST" or not path.startswith(TOPICS):
        return None
    name, _, rest = path[len(TOPICS) :].partition("/")
    if not rest:
        return name, False
    return (name, True) if rest.removesuffix("/") == BATCH else None


def origin_form(target: str) -> str:
    """The path of a request target in absolute form, as proxies send it (RFC 9112, 3.2.2)."""
    _, separator, rest = target.partition("://")
    return "/" + rest.partition("/")[2] if separator else target


@dataclass(eq=False)
class Pages:
    """Answers every request that publishes nothing. `render` gives the metrics as text, `dc` and
    `node` say which node it is.
    """

    drain: Drain
    render: Callable[[], Awaitable[bytes]]
    dc: str = ""
    node: str = ""

    def at_once(self, method: str, path: str) -> Answer | None:
        """The page, or the bare 404 or 405; None for the page that takes its time: the metrics."""
        path = path.rstrip("/") or "/"
        if path in ("/", "/status/ping", "/status/health"):
            page = _UP if self.drain.is_up else _SHUTDOWN
        elif path == "/status/ready":
            page = _READY if self.drain.is_ready else _NOT_READY
        elif path in PROBES:
            probe = self.drain.probe(path)
            page = Answer(probe.status, body=probe.text.encode(), content_type=_PLAIN)
        elif path == "/status/details":
            page = Answer(200, body=self._details(), content_type=JSON)
        elif path == "/status/prometheus":
            page = None
        elif path.startswith(TOPICS) and path[len(TOPICS) :].count("/") == path.endswith(_BATCH):
            return _ONLY_POST
        else:
            return NOT_FOUND
        return page if method in ("GET", "HEAD") else _ONLY_GET

    async def metrics(self) -> Answer:
        """The page with the metrics of the whole node."""
        return Answer(200, body=await self.render(), content_type=_PROMETHEUS)

    def _details(self) -> bytes:
        """Return, as JSON, what a probe's bare word leaves out: where the node stands, why it is
        not ready, what else is to be known of it, how each of its dependencies fares, and which
        node it is.
        """
        drain, found = self.drain, self.drain.dependencies()
        return msgspec.json.encode(
            {
                "phase": drain.phase.name,
                "isReady": not reasons(found),
                "reason": "; ".join(reasons(found)),
                "notices": notices(found),
                "dependencies": shown(found),
                "dc": self.dc,
                "node": self.node,
            }
        )
