"""The actions on a subscription: each has a page that asks, and then says what was done."""

import base64
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from litestar.handlers import HTTPRouteHandler

from hermes_actors.console.console import Console
from hermes_actors.console.pages.subscription import BELOW, place_of
from hermes_actors.management.access.roles import Caller

Change = Callable[[Caller, str, str], Awaitable[dict[str, Any] | None]]


def action_pages(console: Console) -> list[HTTPRouteHandler]:
    """Suspend, activate and remove; the signing secrets; and the test push."""
    parts = console.parts
    subscriptions, secrets = parts.subscriptions, parts.signing_secrets

    async def suspend(caller: Caller, topic: str, name: str) -> None:
        await subscriptions.set_state(caller, topic, name, "SUSPENDED")

    async def activate(caller: Caller, topic: str, name: str) -> None:
        await subscriptions.set_state(caller, topic, name, "ACTIVE")

    async def owned(
        caller: Caller, given: Mapping[str, str], topic: str, name: str
    ) -> dict[str, Any]:
        live = subscriptions.owned(caller, topic, name, "change subscription")
        shown = {"row": parts.statuses.summary(live), "message": given.get("message", "")}
        return place_of(topic, name) | shown

    def action(path: str, act: Change, said: str) -> list[HTTPRouteHandler]:
        async def do(
            caller: Caller, _: Mapping[str, str], topic: str, name: str
        ) -> tuple[str, str] | dict[str, Any]:
            made = await act(caller, topic, name)
            if made is not None:
                # A secret, which is shown once.
                return {"made": made}
            where: str = place_of(topic, name)["base"]
            if path == "remove":
                where = where.rpartition("/subscriptions/")[0]
            return where, said.format(name=name)

        return console.form(f"{BELOW}/{path}", f"subscription_{path}.html", owned, do)

    async def test(
        caller: Caller, given: Mapping[str, str], topic: str, name: str
    ) -> dict[str, Any]:
        message = given.get("message", "")
        body = {"message": base64.b64encode(message.encode()).decode()} if message.strip() else {}
        return {"trial": await parts.trials.make(caller, topic, name, body)}

    return [
        *action("suspend", suspend, "{name} is suspended: messages wait until it is activated."),
        *action(
            "activate", activate, "{name} is activated: its waiting messages are being delivered."
        ),
        *action("rotate", secrets.rotate, ""),
        *action("retire", secrets.retire, "{name} signs with its newest secret only."),
        *action("remove", subscriptions.delete, "{name} is removed."),
        *console.form(f"{BELOW}/test", "subscription_test.html", owned, test),
    ]
