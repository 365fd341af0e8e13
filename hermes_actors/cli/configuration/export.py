"""`hermes export`: writes the cluster's configuration as files for `hermes apply`."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
import yaml

from hermes_actors.cli.administration.resource import topic_path
from hermes_actors.cli.command_line.failures import CommandFailed, warn
from hermes_actors.cli.configuration.files import REFERENCE
from hermes_actors.cli.configuration.requests import LabelOption, Lists, got, labelled
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.output.render import counted, printable, say
from hermes_actors.management.bodies.decoding import without_nulls
from hermes_actors.management.bodies.endpoint import MASKED_PASSWORD
from hermes_actors.management.configuration.items import KINDS, READ_ONLY
from hermes_actors.model.redaction import is_secret_header
from hermes_actors.model.subscription import BatchPolicy, DeliveryType, SerialPolicy

app = typer.Typer()

# Its default is the server's.
_ALWAYS = {"fallbackToRemoteDatacenterEnabled"}
_PROVIDERS = "oauth-providers"


class _Dumper(yaml.CSafeDumper):
    pass


def _text(dumper: Any, text: str) -> Any:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


@management_command(
    app, "hermes export -o topics/", "hermes export --group shop > shop.yaml", name="export"
)
def export(
    label: LabelOption = None,
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Only this group, without providers.")
    ] = None,
    folder: Annotated[
        str,
        typer.Option(
            "--folder", "-o", metavar="DIR", help="Folder for a file per group; '-': stdout."
        ),
    ] = "-",
) -> None:
    """Write groups, topics with schemas, subscriptions, providers and constraints as YAML.

    Fields that hold their defaults are left out; secrets become references to the environment.
    """
    found = labelled(label)
    names = {each["name"] for each in found["topics"]}
    names |= {f"{each['topicName']}${each['name']}" for each in found["subscriptions"]}
    if group is not None and all(each["groupName"] != group for each in found["groups"]):
        raise CommandFailed(f"--group {group}: there is no such group; see 'hermes group list'")
    is_all = label is None
    found["workloadConstraints"] = [e for e in _constraints() if is_all or _named(e) in names]
    files: dict[str, Lists] = {}
    for kind, listed in found.items():
        for each in listed:
            file = _PROVIDERS if kind == "oauthProviders" else f"groups/{_group(kind, each)}"
            if group is None or file == f"groups/{group}":
                files.setdefault(file, {}).setdefault(kind, []).append(each)
    variables: dict[str, str] = {}
    texts = {name: _written(files[name], variables) for name in sorted(files, key=_providers_first)}
    if folder == "-":
        say("---\n".join(texts.values()).rstrip())
        return
    try:
        for name, text in texts.items():
            path = Path(folder, f"{name}.yaml")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"-o {folder}: cannot be written: {error}") from error
    say(f"wrote {counted(len(texts), 'file')} to {folder}")
    written = {Path(folder, f"{name}.yaml") for name in texts}
    for path in sorted({*Path(folder).rglob("*.yaml")} - written):
        warn(printable(f"{path} is not part of this export"))


def _providers_first(file: str) -> tuple[bool, str]:
    return file != _PROVIDERS, file


def _constraints() -> list[dict[str, Any]]:
    found = got("/workload-constraints")
    return [
        {field: name, "constraints": each}
        for field, key in (
            ("topicName", "topicConstraints"),
            ("subscriptionName", "subscriptionConstraints"),
        )
        for name, each in found[key].items()
    ]


def _named(item: dict[str, Any]) -> str:
    return str(item.get("subscriptionName") or item.get("topicName") or item.get("name"))


def _group(kind: str, item: dict[str, Any]) -> str:
    if kind == "groups":
        return str(item["groupName"])
    return _named(item).partition("$")[0].rpartition(".")[0]


def _written(lists: Lists, variables: dict[str, str]) -> str:
    """The file of these items, after a comment with the variables that it adds to `variables`."""
    known = set(variables)
    document = {
        kind: [_exported(kind, each, variables) for each in lists[kind]]
        for kind in KINDS
        if kind in lists
    }
    needed = [f"#   {name}: {what}\n" for name, what in variables.items() if name not in known]
    comment = "# Set these in the environment before you apply this file:\n" if needed else ""
    return f"{comment}{''.join(needed)}" + yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100
    )


def _exported(kind: str, item: dict[str, Any], variables: dict[str, str]) -> dict[str, Any]:
    """The item without defaults and read-only fields, its secrets as references."""
    plain: dict[str, Any] = _escaped({k: v for k, v in item.items() if k not in READ_ONLY})
    # A migration has happened, or not; a topic cannot be created with it.
    plain.pop("migratedFromJsonType", None)
    if kind == "topics" and (text := management().get(f"{topic_path(item['name'])}/schema")):
        plain["schema"] = _escaped(json.loads(text))
    if kind == "subscriptions":
        is_batch = plain.get("deliveryType") == DeliveryType.BATCH
        policy = without_defaults(
            BatchPolicy if is_batch else SerialPolicy, plain["subscriptionPolicy"]
        )
        plain["subscriptionPolicy"] = policy or None
        # The mode says it already; a running subscription is the normal case.
        plain["trackingEnabled"] = None
        plain["state"] = plain["state"] if plain["state"] == "SUSPENDED" else None
    _refer(kind, plain, partial(_variable, variables))
    return without_defaults(KINDS[kind], plain)


def without_defaults(kind: type[msgspec.Struct], item: dict[str, Any]) -> dict[str, Any]:
    """The item without nulls, read-only fields, and fields that hold their defaults."""
    defaults = {}
    for each in msgspec.structs.fields(kind):
        default = each.default
        if each.default_factory is not msgspec.NODEFAULT:
            default = each.default_factory()
        if default is not msgspec.NODEFAULT:
            defaults[each.encode_name] = without_nulls(msgspec.to_builtins(default))
    return {
        name: each
        for name, each in item.items()
        if each is not None
        and name not in READ_ONLY
        and (name in _ALWAYS or name not in defaults or defaults[name] != each)
    }


def _refer(kind: str, item: dict[str, Any], variable: Any) -> None:
    """Replace the secrets by references."""
    if kind == "oauthProviders":
        item["clientSecret"] = variable(f"oauth {item['name']} client secret")
    if kind != "subscriptions":
        return
    name = f"{item['topicName']} {item['name']}"
    policy, signing = item.get("oAuthPolicy") or {}, item.get("signing") or {}
    if "password" in policy:
        policy["password"] = variable(f"{name} oauth password")
    if "secrets" in signing:
        count = len(signing["secrets"])
        signing["secrets"] = [variable(f"{name} signing secret {at + 1}") for at in range(count)]
    for each in item.get("headers") or ():
        if is_secret_header(each["name"]):
            each["value"] = variable(f"{name} header {each['name']}")
    first, *others = item["endpoint"].split(f":{MASKED_PASSWORD}@")
    item["endpoint"] = first + "".join(
        f":{variable(f'{name} endpoint password')}@{each}" for each in others
    )


def _variable(variables: dict[str, str], what: str) -> str:
    """A reference to a new variable, named for what it is."""
    plain = re.sub("[^A-Z0-9]+", "_", what.upper())
    names = (plain, *(f"{plain}_{at}" for at in range(2, 1_000)))
    name = next(each for each in names if each not in variables)
    variables[name] = what
    return f"${{env:{name}}}"


def _escaped(value: Any) -> Any:
    """The value with texts that look like references marked as plain text."""
    if isinstance(value, dict):
        return {name: _escaped(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_escaped(each) for each in value]
    return REFERENCE.sub(r"$\g<0>", value) if isinstance(value, str) else value
