"""`hermes subscription suspend|activate`: one, several, or all that a pattern fits."""

import json
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated

import typer

from hermes_actors.cli.administration.arguments import TopicArgument, completed
from hermes_actors.cli.administration.resource import show_changed, subscription_path
from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong
from hermes_actors.cli.command_line.options import Output, OutputOption, YesOption, confirm
from hermes_actors.cli.command_line.plain import PlainGroup
from hermes_actors.cli.connection.asking import management_command
from hermes_actors.cli.connection.management import ManagementClient
from hermes_actors.cli.output.render import counted, listed, printable

app = typer.Typer(cls=PlainGroup, rich_markup_mode="rich")

SubscriptionsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="SUBSCRIPTION",
        help="One or more names; with * and ? (in quotes) all that fit, after a question.",
        autocompletion=completed("subscription"),
    ),
]
_WILD = "*?["
_NAMED_MAX = 10


def _add(verb: str, state: str, about: str, *lines: str) -> None:
    @management_command(app, *lines, name=verb, about=about)
    def set_states(
        client: ManagementClient,
        topic: TopicArgument,
        subscriptions: SubscriptionsArgument,
        yes: YesOption = False,
        output: OutputOption = Output.TABLE,
    ) -> None:
        _set_states(client, topic, subscriptions, state, yes, output)


_add(
    "suspend",
    "SUSPENDED",
    "Stop deliveries; the place in the topic is kept.",
    "hermes subscription suspend shop.orders billing",
    "hermes subscription suspend shop.orders 'billing-*' --yes",
)
_add(
    "activate",
    "ACTIVE",
    "Go on with deliveries where they stopped.",
    "hermes subscription activate shop.orders billing",
    "hermes subscription activate shop.orders billing search mail",
    "hermes subscription activate shop.orders '*'",
)


def _set_states(
    client: ManagementClient, topic: str, asked: list[str], state: str, yes: bool, output: Output
) -> None:
    names = list(dict.fromkeys(asked))
    if any(_is_pattern(each) for each in asked):
        names = fitting(asked, partial(_listed, client, topic), topic)
        verb = "activate" if state == "ACTIVE" else "suspend"
        shown = listed(names, _NAMED_MAX)
        what = f"{counted(len(names), 'subscription')} of {topic} ({shown})"
        confirm(printable(what), yes, verb)
    # All are looked at before the first is changed.
    paths = {name: subscription_path(topic, name) for name in names}
    failed: list[CommandFailed] = []
    for name, path in paths.items():
        try:
            _set_state(client, path, name, topic, state, output)
        except CommandFailed as failure:
            # The others are asked for all the same: that one is missing holds up none.
            failed.append(failure)
    if failed and len(names) == 1:
        raise failed[0]
    if failed:
        reasons = "; ".join(each.message for each in failed)
        raise CommandFailed(f"{len(failed)} of {len(names)} failed: {reasons}")


def _set_state(
    client: ManagementClient, path: str, name: str, topic: str, state: str, output: Output
) -> None:
    answer = client.put(f"{path}/state", state)
    line = f"subscription {name} of {topic}: asked to be {state}"
    show_changed(client, path, answer, line, output)


def fitting(asked: list[str], listed: Callable[[], list[str]], topic: str) -> list[str]:
    """The names that are asked for, those that fit a pattern in the list's order; each once.

    Raises UsageWrong for a pattern that none fits.
    """
    there = listed()
    found: dict[str, None] = {}
    for each in asked:
        fits = [name for name in there if fnmatchcase(name, each)] if _is_pattern(each) else [each]
        if not fits:
            names = ", ".join(there[:_NAMED_MAX]) or "none"
            raise UsageWrong(
                printable(f"no subscription of {topic} fits '{each}'; there are: {names}")
            )
        found |= dict.fromkeys(fits)
    return list(found)


def _is_pattern(name: str) -> bool:
    return any(letter in name for letter in _WILD)


def _listed(client: ManagementClient, topic: str) -> list[str]:
    found = json.loads(client.get(subscription_path(topic)))
    return sorted(each for each in found if isinstance(each, str))
