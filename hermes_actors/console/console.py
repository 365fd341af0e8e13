"""What all pages share: the frame around them, errors, forms, and messages after a change."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import anyio
import msgspec
from litestar import Response, get, post
from litestar.datastructures import Cookie
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler

from hermes_actors.config import Config
from hermes_actors.console.front import HOME, session_of
from hermes_actors.console.history import History
from hermes_actors.console.rendering import Files, templates
from hermes_actors.console.sessions import Sessions
from hermes_actors.errors import ErrorCode, HermesError, Refused, Unavailable
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.administration import Administration
from hermes_actors.management.http.answers import Answer, AnyRequest, on_fault, on_http_error
from hermes_actors.management.http.gate import REASON, Gate
from hermes_actors.runtime.bridge import BridgeClosed
from hermes_actors.runtime.clock import Clock
from hermes_actors.security.account import Unauthenticated

SIGN_IN = "/console/sign-in"
NAVIGATION = (
    ("Overview", HOME, ()),
    ("Topics", "/console/topics", ("/console/subscriptions", "/console/groups")),
    ("Balancer", "/console/balancer", ()),
    ("Trace", "/console/trace", ()),
    ("Apply", "/console/apply", ()),
    ("Audit", "/console/audit", ()),
)
"""The pages in the bar of all pages, each with the beginnings of further addresses of it."""

SEEN = "seen"
"""The field of a form for the version of what it changes."""

_SAID = "hermes_said"
_SAID_S = 60
_FIELDS_MAX = 200
_BYTES_ON_LOOP_MAX = 32_768
_TITLES = {
    403: "You may not do this",
    404: "There is nothing here",
    503: "Not available at the moment",
}
# Refusals begin with the field, as in "Topic.retentionTime.duration must be …".
_FIELD = re.compile(r"[A-Z]\w+\.([\w.]+)")


Show = Callable[..., Awaitable[dict[str, Any]]]
"""Called with the caller, the query or the form, and the names in the path; returns what a page
shows.
"""
Act = Callable[..., Awaitable[tuple[str, str] | dict[str, Any]]]
"""Called like Show. Makes a change; returns the address of the next page and the message there, or
what the form's page shows in addition.
"""


class Console:
    """The parts and the frame of all pages of one node."""

    def __init__(
        self,
        gate: Gate,
        parts: Administration,
        config: Config,
        clock: Clock,
        sessions: Sessions,
        history: History,
    ) -> None:
        self.gate = gate
        self.parts = parts
        self.config = config
        self.clock = clock
        self.sessions = sessions
        self.history = history
        self.files = Files()
        self._templates = templates()

    async def page(
        self,
        request: AnyRequest,
        template: str,
        status: int = 200,
        *,
        error: Refused | None = None,
        **shown: Any,
    ) -> Answer:
        """The template with `shown`, in the frame of all pages. `error`: why the form on the page
        was refused.
        """
        if error is not None:
            status = error.status
        try:
            caller = await self.gate.caller(request)
        except Unauthenticated:
            # The password or token that the person signed in with does not hold any more.
            caller = None
        shown = {"problem": problem_of(error)} | shown
        body = await self._templates.render(template, self._frame(request, caller) | shown)
        return self._answer(request, body, status)

    async def fragment(self, template: str, **shown: Any) -> Answer:
        """A part of a page, for htmx."""
        body = await self._templates.render(template, {"now_ms": self.clock.now_ms()} | shown)
        return Response(body, media_type="text/html")

    def form(
        self,
        path: str,
        template: str,
        show: Show,
        act: Act,
        locate: Callable[[Refused, dict[str, str]], dict[str, str]] | None = None,
    ) -> list[HTTPRouteHandler]:
        """A page with a form, and what it does when it is sent; the page again with the refusal if
        it is refused. The path's parameters are the `names` of both coroutines. `locate` finds the
        field of a refusal that does not name it.
        """

        @get(path)
        async def asked(request: AnyRequest) -> Answer:
            names = request.path_params.values()
            shown = await self.gate.act(request, show, dict(request.query_params), *names)
            return await self.page(request, template, **shown)

        @post(path)
        async def sent(request: AnyRequest) -> Answer:
            given, names = await form_of(request), request.path_params.values()
            more: dict[str, Any]
            try:
                done = await self.gate.act(request, act, given, *names)
                if isinstance(done, tuple):
                    return self.done(*done)
                more = done
            except Refused as error:
                more = {"error": error}
                if locate is not None:
                    more["problem"] = locate(error, given)
            shown = await self.gate.act(request, show, given, *names)
            return await self.page(request, template, **shown | more)

        return [asked, sent]

    def done(self, where: str, said: str) -> Answer:
        """Lead to the page that shows the result of a change, with a message there."""
        answer = lead(where)
        answer.set_cookie(cookie(_SAID, quote(said), _SAID_S))
        return answer

    def on_error(self, request: AnyRequest, error: Exception) -> Answer:
        """The page for an error. Without valid credentials it is the page to sign in."""
        if isinstance(error, BridgeClosed):
            error = Unavailable(str(error))
        if isinstance(error, HermesError):
            if error.status == 401:
                return self._to_sign_in(request)
            is_absent = error.code.name.endswith("_NOT_EXISTS")
            status, text = 404 if is_absent else error.status, error.message
        else:
            if isinstance(error, HTTPException):
                answer = on_http_error(request, error)
            else:
                answer = on_fault(request, error)
            status, text = answer.status_code or 500, msgspec.json.decode(answer.content)["message"]
        shown = self._frame(request) | {"title": _TITLES.get(status, "That did not work")}
        if session := session_of(request)[1]:
            shown["person"] = session.name
        body = self._templates.render_error(shown | {"text": text})
        return self._answer(request, body, status)

    def _to_sign_in(self, request: AnyRequest) -> Answer:
        # What the session stands for does not hold any more.
        self.sessions.end(session_of(request)[0])
        if "hx-request" in request.headers:
            back = urlsplit(request.headers.get("hx-current-url", "")).path
            headers = {"hx-redirect": sign_in_for(back)}
            return Response(b"", status_code=401, media_type="text/html", headers=headers)
        back = str(request.url.path)
        if request.method == "GET":
            back += f"?{request.url.query}" if request.url.query else ""
        else:
            back = urlsplit(request.headers.get("referer", "")).path
        return lead(sign_in_for(back))

    def _frame(self, request: AnyRequest, caller: Caller | None = None) -> dict[str, Any]:
        is_read_only = not self.parts.mode.is_changeable
        has_sign_in = self.config.management.authentication.enabled
        if caller is None:
            # It may be a guest, who signs in when that is needed.
            may_change = not is_read_only
        else:
            may_change = caller.is_admin or not (is_read_only or caller.is_read_only)
        return {
            "navigation": NAVIGATION,
            "path": request.url.path,
            "here": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
            "dc": self.config.dc,
            "node": self.config.node,
            "person": caller.name if caller and has_sign_in else "",
            "has_sign_in": has_sign_in,
            "jwt": self.config.security.jwt,
            "is_read_only": is_read_only,
            "may_change": may_change,
            "may_add_groups": may_change
            and (not caller or caller.is_admin or self.config.management.non_admin_group_creation),
            "reason": request.scope["state"].get(REASON, ""),
            "said": request.cookies.get(_SAID, ""),
            "now_ms": self.clock.now_ms(),
        }

    def _answer(self, request: AnyRequest, body: bytes, status: int) -> Answer:
        answer = Response(body, status_code=status, media_type="text/html")
        if _SAID in request.cookies:
            answer.delete_cookie(_SAID, "/console")
        return answer


def cookie(name: str, value: str, age_max_s: int, *, is_secure: bool = False) -> Cookie:
    """A cookie that only pages of the console send and no script can read."""
    return Cookie(
        name,
        "/console",
        value,
        max_age=age_max_s,
        secure=is_secure,
        httponly=True,
        samesite="strict",
    )


def lead(where: str) -> Answer:
    """Lead to another page, by GET."""
    return Response(b"", status_code=303, media_type="text/html", headers={"location": where})


def sign_in_for(back: str) -> str:
    """The address of the page to sign in, which leads `back` afterwards."""
    return f"{SIGN_IN}?next={quote(own_page(back), safe='/')}"


def own_page(where: str) -> str:
    """The address if it is a page of the console; else the first page. Never another site."""
    is_own = where.startswith("/console/") and where.isprintable() and "\\" not in where
    return where if is_own and not where.startswith(SIGN_IN) else HOME


async def form_of(request: AnyRequest) -> dict[str, str]:
    """The fields of the form that a person has sent. The field `reason` is not among them: it
    becomes the reason of the change, as the header Hermes-Change-Reason does. Raises Refused.
    """
    body = await request.body()
    try:
        if len(body) > _BYTES_ON_LOOP_MAX:
            fields = await anyio.to_thread.run_sync(_fields, body)
        else:
            fields = _fields(body)
    except ValueError as error:
        raise Refused("The form cannot be read; send it again", ErrorCode.FORMAT_ERROR) from error
    form = dict(fields)
    if reason := form.pop("reason", ""):
        request.scope["state"][REASON] = reason
    return form


def _fields(body: bytes) -> list[tuple[str, str]]:
    return parse_qsl(body.decode(), True, errors="strict", max_num_fields=_FIELDS_MAX)


def require_current(form: Mapping[str, str], version: str) -> None:
    """Refuse (409) a form that was filled from another version."""
    if form.get(SEEN) != version:
        raise Refused(
            "Somebody changed this after you opened the form. To overwrite that, save again",
            status=409,
        )


def problem_of(error: Refused | None) -> dict[str, str]:
    """The field that a refusal names, and its text; the field is empty if it names none. Empty
    without a refusal.
    """
    if error is None:
        return {}
    found = _FIELD.match(error.message)
    return {"field": found[1] if found else "", "text": error.message}
