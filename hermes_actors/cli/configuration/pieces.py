"""Sends a configuration to management in requests of limited size."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from hermes_actors.cli.connection.asking import management
from hermes_actors.management.configuration.items import Item

_BYTES_MAX = 524_288
_PARTS_MAX = 15_000
"""Commas, colons and brackets: the server counts them too, and takes a few more."""
_ITEMS_MAX = 500
_TIMEOUT_S = 300.0

Rows = list[dict[str, Any]]


def send(items: Iterable[Item], *, dry_run: bool, deletes: bool = False) -> Iterator[Rows]:
    """Apply the items, or delete them. Yields the server's rows of each request."""
    path = "/apply?dryRun=true" if dry_run else "/apply"
    known: set[str] = set()
    for piece in _pieces(list(items), repeats=not deletes):
        lists: dict[str, list[Any]] = {}
        for each in piece:
            lists.setdefault(each.kind, []).append(each.body)
        body: dict[str, Any] = {"delete": lists} if deletes else lists
        rows = json.loads(management().post(path, body, timeout_s=_TIMEOUT_S))
        yield [each for each in rows if each["resource"] not in known]
        known |= {each["resource"] for each in rows}


def _pieces(items: list[Item], *, repeats: bool) -> Iterator[list[Item]]:
    """Cut the items into pieces. If it `repeats`, each piece also has the groups and topics that
    its items are in, so that a dry run knows them, although nothing is stored between requests.
    """
    by_name = {each.resource: each for each in items} if repeats else {}
    piece: dict[str, Item] = {}
    size = parts = 0
    for item in items:
        wanted = [item]
        while (parent := by_name.get(wanted[-1].parent)) is not None:
            wanted.append(parent)
        text = json.dumps([each.body for each in wanted])
        more = sum(map(text.count, ",:[{"))
        is_full = size + len(text) > _BYTES_MAX or parts + more > _PARTS_MAX
        if piece and (is_full or len(piece) >= _ITEMS_MAX):
            yield [*piece.values()]
            piece, size, parts = {}, 0, 0
        new = {each.resource: each for each in wanted if each.resource not in piece}
        text = json.dumps([each.body for each in new.values()])
        size, parts = size + len(text), parts + sum(map(text.count, ",:[{"))
        piece |= new
    if piece:
        yield [*piece.values()]
