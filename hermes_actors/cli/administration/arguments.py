"""The arguments that name things of management, which a shell may complete."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer


class Named(StrEnum):
    """Things whose names a shell may complete."""

    GROUP = "group"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"


def completed(what: Named) -> Callable[[typer.Context, str], list[str]]:
    """The names that management knows of such things, for `autocompletion`."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        # Loaded where it is used: the client takes a while, and `hermes --help` needs none.
        from hermes_actors.cli.administration.names import names_of

        return names_of(what, ctx.params, incomplete)

    return complete


TopicArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="group.topic, for example shop.orders",
        autocompletion=completed(Named.TOPIC),
    ),
]
GroupArgument = Annotated[
    str,
    typer.Argument(metavar="GROUP", help="for example shop", autocompletion=completed(Named.GROUP)),
]
SubscriptionArgument = Annotated[
    str,
    typer.Argument(
        metavar="SUBSCRIPTION",
        help="for example billing",
        autocompletion=completed(Named.SUBSCRIPTION),
    ),
]
