"""The ASGI layer in front of management: sessions become credentials, pages get their headers."""

from collections.abc import Iterable
from http import HTTPStatus

from hermes_actors.console.sessions import Session, Sessions
from hermes_actors.management.http.answers import AnyRequest, AsgiApp, Event, Receive, Send

HOME = "/console/overview"

_SESSION = "hermes_session"
_LIVE = "/live"
_OF_BROWSERS = (b"origin", b"sec-fetch-site")
"""Every browser sends one of them with a form. Without them, the form's page is not known."""

_POLICY = (
    b"default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    b"frame-ancestors 'none'"
)
_PAGE_HEADERS = (
    (b"content-security-policy", _POLICY),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    # With no-referrer, browsers would send forms without their origin.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_UNCACHED = (b"cache-control", b"no-store")


class Front:
    """Paths below /console have a session: its cookie becomes the Authorization header that it
    stands for. Other paths ignore the cookie. The addresses that people type lead to the console.

    Requests that end in /live are the page's own, not a person's: they do not keep a session open.
    """

    def __init__(self, app: AsgiApp, sessions: Sessions) -> None:
        self._app = app
        self._sessions = sessions
        self._cookie = f"{sessions.cookie}="

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        """Serve one request, or the server's lifespan."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"].startswith("//"):
            # Litestar drops a slash: it would serve pages without their headers.
            await _answer(send, HTTPStatus.NOT_FOUND)
        elif _leads_to_console(scope):
            await _answer(send, HTTPStatus.SEE_OTHER, (b"location", HOME.encode()))
        elif not scope["path"].startswith("/console/"):
            await self._app(scope, receive, send)
        else:
            await self._page(scope, receive, send)

    async def _page(self, scope: Event, receive: Receive, send: Send) -> None:
        id_ = self._id_in(scope["headers"])
        session = self._sessions.find(id_, is_used=not scope["path"].endswith(_LIVE))
        names = {name for name, _ in scope["headers"]}
        if session is not None and b"authorization" not in names:
            if scope["method"] not in ("GET", "HEAD") and names.isdisjoint(_OF_BROWSERS):
                await _answer(send, HTTPStatus.FORBIDDEN)
                return
            headers = [*scope["headers"], (b"authorization", session.authorization.encode())]
            scope = {**scope, "headers": headers, _SESSION: (id_, session)}

        async def send_page(message: Event) -> None:
            if message["type"] == "http.response.start":
                # Pages are for people at this origin; CORS headers are for programs.
                kept = [each for each in message["headers"] if not each[0].startswith(b"access-")]
                if all(name != b"cache-control" for name, _ in kept):
                    kept.append(_UNCACHED)
                message["headers"] = [*kept, *_PAGE_HEADERS]
            await send(message)

        await self._app(scope, receive, send_page)

    def _id_in(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        for name, value in headers:
            if name == b"cookie":
                for each in value.decode("latin-1").split(";"):
                    if each.strip().startswith(self._cookie):
                        return each.strip()[len(self._cookie) :]
        return ""


def _leads_to_console(scope: Event) -> bool:
    path: str = scope["path"].rstrip("/")
    if scope["method"] not in ("GET", "HEAD"):
        return False
    if path != "/console":
        return path == "" or path == "/ui" or path.startswith("/ui/")
    # Other clients get the configuration of Hermes' console there.
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    return any(name == b"accept" and b"text/html" in value for name, value in headers)


def session_of(request: AnyRequest) -> tuple[str, Session | None]:
    """The id of the request's session, and the session; an empty string and None without one."""
    found: tuple[str, Session | None] = request.scope.get(_SESSION, ("", None))  # type: ignore
    return found


async def _answer(send: Send, status: HTTPStatus, *headers: tuple[bytes, bytes]) -> None:
    length = (b"content-length", b"0")
    start = {"type": "http.response.start", "status": status, "headers": [length, *headers]}
    await send(start)
    await send({"type": "http.response.body", "body": b""})
