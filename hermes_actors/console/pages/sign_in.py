"""Signing in with name and password, or with a bearer token; and signing out."""

import base64

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromQuery

from hermes_actors.console.console import SIGN_IN, Console, cookie, form_of, lead, own_page
from hermes_actors.console.front import HOME, session_of
from hermes_actors.console.sessions import AGE_MAX_S
from hermes_actors.management.http.answers import Answer, AnyRequest
from hermes_actors.security.account import Credentials, Unauthenticated

_SIGN_OUT = "/sign-out"


def sign_in_page(console: Console) -> list[HTTPRouteHandler]:
    """/console/sign-in and /console/sign-out."""
    security = console.parts.security

    @get("/sign-in")
    async def shown(request: AnyRequest, next: FromQuery[str] = HOME) -> Answer:  # noqa: A002 -- the query's
        if not console.config.management.authentication.enabled:
            return lead(HOME)
        back = own_page(next)
        return await console.page(request, "sign_in.html", next=back, name="", problem="")

    @post("/sign-in")
    async def sign_in(request: AnyRequest) -> Answer:
        form = await form_of(request)
        name, token = form.get("name", "").strip(), form.get("token", "").strip()
        password = form.get("password", "")
        basic = base64.b64encode(f"{name}:{password}".encode()).decode()
        authorization = f"Bearer {token}" if token else f"Basic {basic}"
        where = own_page(form.get("next", ""))
        try:
            caller = await console.gate.read(
                security.identify, Credentials(authorization), needs_metadata=False
            )
        except Unauthenticated as error:
            return await console.page(
                request, "sign_in.html", 401, next=where, name=name, problem=error.message
            )
        if caller is None:
            raise security.refusal()
        answer = lead(where)
        console.sessions.end(session_of(request)[0])
        id_ = console.sessions.begin(caller.name, authorization)
        # The page's origin is the only sign of TLS that is right behind a proxy too.
        is_secure = request.headers.get("origin", "").startswith("https://")
        set_ = cookie(console.sessions.cookie, id_, int(AGE_MAX_S), is_secure=is_secure)
        answer.set_cookie(set_)
        return answer

    @post(_SIGN_OUT)
    async def sign_out(request: AnyRequest) -> Answer:
        id_, _ = session_of(request)
        console.sessions.end(id_)
        answer = lead(SIGN_IN)
        answer.delete_cookie(console.sessions.cookie, "/console")
        return answer

    return [shown, sign_in, sign_out]
