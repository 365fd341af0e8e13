"""The arguments that name things of management, which a shell may complete."""

import json
import os
from collections.abc import Callable
from typing import Annotated, Literal

import typer

from hermes_actors.cli.command_line.options import (
    MANAGEMENT_URL_DEFAULT,
    MANAGEMENT_URL_VARIABLE,
    given,
)

NAMES_MAX = 1_000
TIMEOUT_S = 0.5
"""Nobody waits longer for a completion."""

_LISTS = {
    "group": "/groups",
    "topic": "/topics",
    "subscription": "/topics/{topic}/subscriptions",
}


def completed(
    what: Literal["group", "topic", "subscription"],
) -> Callable[[typer.Context, str], list[str]]:
    """The names that management knows of such things, for `autocompletion`.

    None where it cannot be asked, is late, or says no: the shell has no place for errors.
    """

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        # Loaded where it is used: the client takes a while, and `hermes --help` needs none.
        from hermes_actors.cli.connection.management import ManagementClient, quoted

        try:
            topic = quoted(ctx.params.get("topic") or "") if what == "subscription" else ""
            # `hermes publish` has no such option, and takes topics all the same.
            url = given("management") or os.environ.get(MANAGEMENT_URL_VARIABLE)
            # Never a question: the terminal is the shell's now.
            with ManagementClient(
                url or MANAGEMENT_URL_DEFAULT, asks=False, timeout_s=TIMEOUT_S
            ) as client:
                found = json.loads(client.get(_LISTS[what].format(topic=topic)))
        except (typer.TyperException, ValueError, RecursionError):
            return []
        names = found if isinstance(found, list) else []
        fitting = [name for name in names if isinstance(name, str) and name.startswith(incomplete)]
        return sorted(fitting)[:NAMES_MAX]

    return complete


TopicArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="group.topic, for example shop.orders",
        autocompletion=completed("topic"),
    ),
]
AnyTopicArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[TOPIC]", help="Of this topic; else of all.", autocompletion=completed("topic")
    ),
]
AnySubscriptionArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[SUBSCRIPTION]",
        help="Of this one of the topic.",
        autocompletion=completed("subscription"),
    ),
]
GroupArgument = Annotated[
    str,
    typer.Argument(metavar="GROUP", help="for example shop", autocompletion=completed("group")),
]
SubscriptionArgument = Annotated[
    str,
    typer.Argument(
        metavar="SUBSCRIPTION",
        help="for example billing",
        autocompletion=completed("subscription"),
    ),
]
