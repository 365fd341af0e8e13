"""The actions on a subscription: each has a page that asks, and then says what was done."""

import base64
from collections.abc import Awaitable, Callable
from typing import Any

from litestar import post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from hermes_actors.console.console import Console, form_of
from hermes_actors.console.pages.subscription import BELOW, place_of, shows
from hermes_actors.errors import Refused
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.http.answers import Answer, AnyRequest

Act = Callable[[Caller, str, str], Awaitable[dict[str, Any] | None]]


def action_pages(console: Console) -> list[HTTPRouteHandler]:
    """Suspend, activate and remove; the signing secrets; and the test push."""
    parts = console.parts
    subscriptions, secrets = parts.subscriptions, parts.signing_secrets

    async def suspend(caller: Caller, topic: str, name: str) -> None:
        await subscriptions.set_state(caller, topic, name, "SUSPENDED")

    async def activate(caller: Caller, topic: str, name: str) -> None:
        await subscriptions.set_state(caller, topic, name, "ACTIVE")

    async def owned(caller: Caller, topic: str, name: str) -> dict[str, Any]:
        live = subscriptions.owned(caller, topic, name, "change subscription")
        shown = {"row": parts.statuses.summary(live), "message": "", "trial": None}
        return place_of(topic, name) | shown

    def action(path: str, act: Act, said: str) -> list[HTTPRouteHandler]:
        @post(f"{BELOW}/{path}")
        async def do(request: AnyRequest, topic: FromPath[str], name: FromPath[str]) -> Answer:
            await form_of(request)
            place = place_of(topic, name)
            made = await console.gate.act(request, act, topic, name)
            if made is not None:
                # A secret, which is shown once.
                return await console.page(request, "subscription_secret.html", made=made, **place)
            where: str = place["base"]
            if path == "remove":
                where = where.rpartition("/subscriptions/")[0]
            return console.done(where, said.format(name=name))

        return [shows(console, f"/{path}", f"subscription_{path}.html", owned), do]

    @post(f"{BELOW}/test")
    async def test(request: AnyRequest, topic: FromPath[str], name: FromPath[str]) -> Answer:
        message = (await form_of(request)).get("message", "")
        body = {"message": base64.b64encode(message.encode()).decode()} if message.strip() else {}
        shown = place_of(topic, name) | {"message": message, "trial": None}
        try:
            shown["trial"] = await console.gate.act(request, parts.trials.make, topic, name, body)
        except Refused as refusal:
            shown["error"] = refusal
        return await console.page(request, "subscription_test.html", **shown)

    return [
        *action("suspend", suspend, "{name} is suspended: messages wait until it is activated."),
        *action("activate", activate, "{name} is activated: what waits is being delivered."),
        *action("rotate", secrets.rotate, ""),
        *action("retire", secrets.retire, "{name} signs with its newest secret only."),
        *action("remove", subscriptions.delete, "{name} is removed."),
        shows(console, "/test", "subscription_test.html", owned),
        test,
    ]
