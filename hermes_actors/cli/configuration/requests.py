"""The requests of `hermes apply` and `hermes export`: items are listed, applied and deleted."""

import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.connection.asking import management
from hermes_actors.cli.connection.management import quoted
from hermes_actors.management.configuration.items import Item

_BYTES_MAX = 524_288
_PARTS_MAX = 15_000
"""Commas, colons and brackets: the server counts them too, and takes a few more."""
_ITEMS_MAX = 500
_TIMEOUT_S = 300.0

Lists = dict[str, list[dict[str, Any]]]
Rows = list[dict[str, Any]]

LabelOption = Annotated[
    str | None, typer.Option("--label", metavar="KEY=VALUE", help="Only items with this label.")
]


def labelled(label: str | None = None) -> Lists:
    """The OAuth providers, groups, topics and subscriptions with this label; None for all.

    Subscriptions are sorted by topic and name, others by name. Secrets are masked.
    """
    key, equals, value = (label or "").partition("=")
    if label is not None and not (key and equals):
        raise UsageWrong(f"--label '{label}': expected KEY=VALUE, for example team=shop")
    query = {} if label is None else {f"labels.{key}": value}
    providers = [got(f"/oauth/providers/{quoted(name)}") for name in got("/oauth/providers")]
    wanted = [each for each in providers if not query or each.get("labels", {}).get(key) == value]
    found = {"oauthProviders": wanted}
    for kind in ("groups", "topics", "subscriptions"):
        answer = management().post(f"/query/{kind}", {"query": query}, timeout_s=_TIMEOUT_S)
        found[kind] = json.loads(answer)
    return found


def got(path: str) -> Any:
    """The answer to a GET."""
    return json.loads(management().get(path))


def send(items: Iterable[Item], *, dry_run: bool, deletes: bool = False) -> Iterator[Rows]:
    """Apply the items, or delete them. Yields the server's rows of each request."""
    path = "/apply?dryRun=true" if dry_run else "/apply"
    known: set[str] = set()
    for piece in _pieces(list(items), repeats=not deletes):
        lists: Lists = {}
        for each in piece:
            lists.setdefault(each.kind, []).append(dict(each.body))
        body: dict[str, Any] = {"delete": lists} if deletes else lists
        rows = json.loads(management().post(path, body, timeout_s=_TIMEOUT_S))
        yield [each for each in rows if each["resource"] not in known]
        known |= {each["resource"] for each in rows}


def _pieces(items: list[Item], *, repeats: bool) -> Iterator[list[Item]]:
    """Cut the items into pieces. If it `repeats`, each piece also has the groups and topics that
    its items are in, so that a dry run knows them, although nothing is stored between requests.
    """
    parents = {each.resource: each for each in items} if repeats else {}
    piece: dict[str, Item] = {}
    used = 0.0
    for item in items:
        wanted = {item.resource: item}
        while (parent := parents.get(item.parent)) is not None:
            item = wanted[parent.resource] = parent
        text = json.dumps([each.body for each in wanted.values()])
        parts = sum(map(text.count, ",:[{"))
        share = max(1 / _ITEMS_MAX, len(text) / _BYTES_MAX, parts / _PARTS_MAX)
        if piece and used + share > 1:
            yield [*piece.values()]
            piece, used = {}, 0.0
        piece |= wanted
        used += share
    if piece:
        yield [*piece.values()]
