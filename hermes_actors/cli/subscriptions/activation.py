"""`hermes subscription suspend|activate`: for one, several, or all that match a pattern."""

import json
from fnmatch import fnmatchcase
from typing import Annotated

import typer

from hermes_actors.cli.administration.arguments import TopicArgument, completed
from hermes_actors.cli.administration.resource import show_changed, subscription_path
from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong
from hermes_actors.cli.command_line.options import YesOption, confirm
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.output.render import counted, printable

app = typer.Typer()

SubscriptionsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="SUBSCRIPTION",
        help="One or more names, or patterns with * and ? (in quotes), which ask for confirmation.",
        autocompletion=completed("subscription"),
    ),
]


@management_command(
    app,
    "hermes subscription suspend shop.orders billing",
    "hermes subscription suspend shop.orders 'billing-*' --yes",
)
def suspend(
    topic: TopicArgument, subscriptions: SubscriptionsArgument, yes: YesOption = False
) -> None:
    """Stop deliveries; the position in the topic is kept."""
    _set_states(topic, subscriptions, "suspend", "SUSPENDED", yes)


@management_command(
    app,
    "hermes subscription activate shop.orders billing",
    "hermes subscription activate shop.orders billing search mail",
    "hermes subscription activate shop.orders '*'",
)
def activate(
    topic: TopicArgument, subscriptions: SubscriptionsArgument, yes: YesOption = False
) -> None:
    """Continue deliveries where they stopped."""
    _set_states(topic, subscriptions, "activate", "ACTIVE", yes)


def _set_states(topic: str, asked: list[str], verb: str, state: str, yes: bool) -> None:
    names = list(dict.fromkeys(asked))
    if any(_is_pattern(each) for each in asked):
        there = json.loads(management().get(subscription_path(topic)))
        names = fitting(asked, sorted(map(str, there)), topic)
        what = f"{counted(len(names), 'subscription')} of {topic} ({', '.join(names)})"
        confirm(printable(what), yes, verb)
    # Check all names before the first change.
    paths = {name: subscription_path(topic, name) for name in names}
    failed: list[CommandFailed] = []
    for name, path in paths.items():
        try:
            answer = management().put(f"{path}/state", state)
            show_changed(path, answer, f"subscription {name} of {topic}: will be {state}")
        except CommandFailed as failure:
            # A missing one must not stop the others.
            failed.append(failure)
    if failed and len(names) == 1:
        raise failed[0]
    if failed:
        reasons = "; ".join(each.message for each in failed)
        raise CommandFailed(f"{len(failed)} of {len(names)} failed: {reasons}")


def fitting(asked: list[str], there: list[str], topic: str) -> list[str]:
    """Return the requested names, and those that match a pattern in the list's order; each once.

    Raises UsageWrong for a pattern without a match.
    """
    found: dict[str, None] = {}
    for each in asked:
        fits = [name for name in there if fnmatchcase(name, each)] if _is_pattern(each) else [each]
        if not fits:
            names = ", ".join(there) or "none"
            raise UsageWrong(
                printable(f"no subscription of {topic} matches '{each}'; there are: {names}")
            )
        found |= dict.fromkeys(fits)
    return list(found)


def _is_pattern(name: str) -> bool:
    return any(letter in name for letter in "*?[")
