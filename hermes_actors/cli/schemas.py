"""`hermes schema …`: shows, compares and saves the schemas of topics."""

import difflib
import json
from typing import Annotated

import typer

from hermes_actors.cli.administration.arguments import TopicArgument
from hermes_actors.cli.command_line.bodies import text_from_file
from hermes_actors.cli.command_line.failures import EXIT_FAILED, UsageWrong
from hermes_actors.cli.command_line.options import wants_json
from hermes_actors.cli.command_line.plain import command_group
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.connection.management import quoted
from hermes_actors.cli.output.render import (
    Fields,
    parsed_object,
    say,
    show_answer,
    write_json,
)
from hermes_actors.errors import Refused
from hermes_actors.model.schema import Schema, SchemaKind
from hermes_actors.model.topic import ContentType
from hermes_actors.schema.compatibility import why_unreadable
from hermes_actors.schema.json_schema import can_read
from hermes_actors.schema.work import compiles

app = command_group("Schemas: what the messages of a topic must look like.")

_REGISTRY = "/schema-registry"

SchemaArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="The schema, in JSON; '-' reads stdin.")
]
VersionOption = Annotated[
    int | None, typer.Option("--version", min=1, help="A version other than the newest.")
]


@management_command(
    app,
    "hermes schema show shop.orders",
    "hermes schema show shop.orders --version 1 -o json",
)
def show(topic: TopicArgument, version: VersionOption = None) -> None:
    """Print a topic's schema as it was saved; with -o json also its version and id."""
    show_answer(_version(topic, version), lambda found: say(str(found.get("schema"))))


@management_command(app, "hermes schema push shop.orders order.schema.json")
def push(topic: TopicArgument, file: SchemaArgument) -> None:
    """Save a schema as the topic's newest one; messages must match it from now on."""
    text = text_from_file("the schema", file)
    # Otherwise a misspelt topic would create a subject without a topic.
    body = {"schemaType": _kind_for(topic), "schema": text}
    management().post(f"{_subject(topic)}/versions", body)
    content = management().post(_subject(topic), body)
    show_answer(
        content,
        lambda found: say(f"topic {topic}: version {found.get('version')}, id {found.get('id')}"),
    )


@management_command(app, "hermes schema check shop.orders order.schema.json")
def check(
    topic: TopicArgument,
    file: SchemaArgument,
) -> None:
    """Check what a new schema would break; exit code 1 if it would be refused.

    It says whether messages that are accepted now might be refused, and lists the topic's
    subscriptions if they might get messages that the present schema forbids.
    """
    schema = Schema(_kind_for(topic), text_from_file("the schema", file))
    try:
        compiles(schema, topic, needs_metadata=False)
    except Refused as error:
        raise UsageWrong(f"{file}: {error.message}") from error
    subscriptions = _names(management().get(f"/topics/{quoted(topic)}/subscriptions"))
    subjects = _names(management().get(f"{_REGISTRY}/subjects"))
    found: Fields = {"isTaken": True, "reasons": [], "refuses": False, "affected": []}
    if topic in subjects:
        body = {"schemaType": schema.kind, "schema": schema.text}
        path = f"{_REGISTRY}/compatibility/subjects/{quoted(topic)}/versions?verbose=true"
        answer = parsed_object(management().post(path, body))
        newest = parsed_object(_version(topic, None))
        # Confluent's registry omits the kind if it is Avro.
        kind = SchemaKind(newest.get("schemaType", SchemaKind.AVRO))
        present = Schema(kind, str(newest.get("schema")))
        found = {
            "isTaken": answer.get("is_compatible") is True,
            "reasons": answer.get("messages") or [],
            "refuses": not _can_read(schema, present),
            "affected": subscriptions if not _can_read(present, schema) else [],
        }
    if wants_json():
        write_json(json.dumps(found).encode())
    else:
        _say_checked(topic, found)
    if not found["isTaken"]:
        raise typer.Exit(EXIT_FAILED)


def _say_checked(topic: str, found: Fields) -> None:
    if found["isTaken"]:
        say("would be accepted: it is compatible with earlier versions at the topic's level")
    for reason in found["reasons"]:
        say(f"would be refused: {reason}")
    if found["refuses"]:
        say(f"publishers: messages that {topic} accepts now might be refused")
    if found["affected"]:
        names = ", ".join(found["affected"])
        say(f"subscriptions that might get messages they do not know yet: {names}")


@management_command(
    app,
    "hermes schema diff shop.orders order.schema.json",
    "hermes schema diff shop.orders --version 1",
)
def diff(
    topic: TopicArgument,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="Default: the newest version.")
    ] = None,
    version: VersionOption = None,
) -> None:
    """Print the changes of a schema: removed lines (-) and added lines (+).

    A file is compared with the topic's newest version, or with --version; without a file,
    --version is compared with the newest version.
    """
    if file is None and version is None:
        raise UsageWrong("give a FILE, or --version N to compare with the newest version")
    old = parsed_object(_version(topic, version))
    names = (f"version {old.get('version')}", file or "newest version")
    new = (
        text_from_file("the schema", file)
        if file is not None
        else str(parsed_object(_version(topic, None)).get("schema"))
    )
    before, after = _pretty(str(old.get("schema"))), _pretty(new)
    for line in difflib.unified_diff(before, after, *names, lineterm=""):
        say(line)


def _kind_for(topic: str) -> SchemaKind:
    """Return the kind of a topic's schema. Fails if there is no such topic."""
    found = parsed_object(management().get(f"/topics/{quoted(topic)}"))
    is_avro = found.get("contentType") == ContentType.AVRO or found.get("jsonToAvroDryRun") is True
    return SchemaKind.AVRO if is_avro else SchemaKind.JSON


def _can_read(reader: Schema, writer: Schema) -> bool:
    if reader.kind is not writer.kind:
        return False
    if reader.kind is SchemaKind.JSON:
        return can_read(reader.text, writer.text)
    return not why_unreadable(reader.text, writer.text)


def _subject(topic: str) -> str:
    return f"{_REGISTRY}/subjects/{quoted(topic)}"


def _version(topic: str, version: int | None) -> bytes:
    return management().get(f"{_subject(topic)}/versions/{version or 'latest'}")


def _names(content: bytes) -> list[str]:
    found = json.loads(content)
    return [str(each) for each in found] if isinstance(found, list) else []


def _pretty(text: str) -> list[str]:
    try:
        return json.dumps(json.loads(text), indent=2).splitlines()
    except (ValueError, RecursionError):
        return text.splitlines()
