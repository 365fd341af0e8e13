"""The cluster's items, all or those with a label, as the API shows them."""

import json
from typing import Annotated, Any

import typer

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.connection.asking import management
from hermes_actors.cli.connection.management import quoted

_TIMEOUT_S = 120.0

Lists = dict[str, list[dict[str, Any]]]

LabelOption = Annotated[
    str | None, typer.Option("--label", metavar="KEY=VALUE", help="Only what has this label.")
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
    queried = {
        kind: json.loads(
            management().post(f"/query/{kind}", {"query": query}, timeout_s=_TIMEOUT_S)
        )
        for kind in ("groups", "topics", "subscriptions")
    }
    return {"oauthProviders": wanted, **queried}


def got(path: str) -> Any:
    """The answer to a GET."""
    return json.loads(management().get(path))
