"""The frontend's status pages, and the mapping from paths to pages and topics, the same for every
edge.
"""

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
    """The topic that a request publishes to (empty string if it names none), and whether it is a
    batch. None if the request is for a page. One trailing slash is ignored.
    """
    if method != "POST" or not path.startswith(TOPICS):
        return None
    name, _, rest = path[len(TOPICS) :].partition("/")
    if not rest:
        return name, False
    return (name, True) if rest.removesuffix("/") == BATCH else None


def origin_form(target: str) -> str:
    """The path of a request target in absolute form, which proxies send (RFC 9112, 3.2.2)."""
    _, separator, rest = target.partition("://")
    return "/" + rest.partition("/")[2] if separator else target


@dataclass(eq=False)
class Pages:
    """Answers every request that is not a publish. `render` returns the metrics as text; `dc` and
    `node` identify the node.
    """

    drain: Drain
    render: Callable[[], Awaitable[bytes]]
    dc: str = ""
    node: str = ""

    def at_once(self, method: str, path: str) -> Answer | None:
        """The page, or an empty 404 or 405. None for the metrics, which take time to render."""
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
        """The metrics of the whole node."""
        return Answer(200, body=await self.render(), content_type=_PROMETHEUS)

    def _details(self) -> bytes:
        """Return the details behind the probes as JSON: the node's phase, why it is not ready,
        notices, the state of each dependency, and which node it is.
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
