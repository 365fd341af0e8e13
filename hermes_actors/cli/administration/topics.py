"""`hermes topic …`: topics through the management API."""

from typing import Annotated, Any

import typer

from hermes_actors.cli.administration import resource
from hermes_actors.cli.administration.arguments import TopicArgument, completed
from hermes_actors.cli.administration.resource import topic_path
from hermes_actors.cli.command_line import bodies
from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.command_line.options import FromFileOption, PatchArgument, YesOption
from hermes_actors.cli.command_line.plain import command_group
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.connection.management import Refusal
from hermes_actors.cli.output.render import Fields, show_answer, show_fields, show_names
from hermes_actors.model.topic import (
    MESSAGE_BYTES_DEFAULT,
    MESSAGE_BYTES_MAX,
    MESSAGE_BYTES_MIN,
    Ack,
    ContentType,
    Durability,
)

OWNER_DEFAULT = "Plaintext:dev"

app = command_group("Topics: what is published to.")


@management_command(
    app,
    "hermes topic create shop.orders",
    "hermes topic create shop.orders --create-group --retention 7d --ack ALL",
    "hermes topic create shop.orders --owner Plaintext:team-shop --fallback",
    "hermes topic create shop.orders --content-type AVRO --schema order.avsc",
    "hermes topic create --from-file topic.json",
    "hermes topic show shop.orders -o json > topic.json",
)
def create(
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="group.topic; may be in the file.")
    ] = None,
    content_type: Annotated[
        ContentType | None,
        typer.Option(help="Stored form; AVRO needs --schema.", show_default="JSON"),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Avro or JSON Schema that messages must match."),
    ] = None,
    retention: Annotated[
        str | None, typer.Option(metavar="TIME", help="Like 90s, 30m, 12h, 7d.", show_default="1d")
    ] = None,
    ack: Annotated[
        Ack | None, typer.Option(help="Replicas that hold it at 201.", show_default="LEADER")
    ] = None,
    durability: Annotated[
        Durability | None,
        typer.Option(
            help="CONSISTENT: two replicas at 201. PERFORMANCE: in memory only.",
            show_default="EVENTUAL",
        ),
    ] = None,
    max_message_size: Annotated[
        int | None,
        typer.Option(
            min=MESSAGE_BYTES_MIN,
            max=MESSAGE_BYTES_MAX,
            metavar="BYTES",
            show_default=str(MESSAGE_BYTES_DEFAULT),
        ),
    ] = None,
    owner: Annotated[
        str | None, typer.Option(metavar="SOURCE:ID", show_default=OWNER_DEFAULT)
    ] = None,
    description: Annotated[str | None, typer.Option(metavar="TEXT")] = None,
    tracking: Annotated[bool, typer.Option("--tracking", help="Record events.")] = False,
    fallback: Annotated[
        bool | None,
        typer.Option(
            "--fallback/--no-fallback",
            help="Publish to another datacentre if the local log fails.",
            show_default="the server's",
        ),
    ] = None,
    create_group: Annotated[
        bool, typer.Option("--create-group", help="Also create its group if missing.")
    ] = False,
    from_file: FromFileOption = None,
) -> None:
    """Create a topic. Options override the file given with --from-file."""
    given: dict[str, Any] = {
        "name": topic,
        "description": description,
        "owner": None if owner is None else bodies.owner(owner),
        "contentType": content_type,
        "schema": None if schema is None else bodies.text_from_file("--schema", schema),
        "retentionTime": None if retention is None else bodies.retention(retention),
        "ack": ack,
        "durability": durability,
        "maxMessageSize": max_message_size,
        "trackingEnabled": tracking or None,
        "fallbackToRemoteDatacenterEnabled": fallback,
    }
    body = topic_body(bodies.from_file(from_file), given)
    name = str(body["name"])
    if create_group:
        ensure_group(name.rpartition(".")[0])
    resource.create("/topics", topic_path(name), body, f"topic {name}")


def topic_body(file: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return a topic as JSON: the options override the file, which overrides defaults for
    development.
    """
    defaults: dict[str, Any] = {
        "description": "",
        "owner": bodies.owner(OWNER_DEFAULT),
        "contentType": "JSON",
        "retentionTime": bodies.retention("1d"),
        "ack": "LEADER",
        "maxMessageSize": MESSAGE_BYTES_DEFAULT,
    }
    if given.get("durability") or file.get("durability"):
        # The server's default follows from it.
        del defaults["ack"]
    body = defaults | file | {key: value for key, value in given.items() if value is not None}
    # So that the output of `show` can be used as a file: the server sets these two.
    body.pop("createdAt", None)
    body.pop("modifiedAt", None)
    if body.get("contentType") == ContentType.AVRO and not body.get("schema"):
        raise UsageWrong("an AVRO topic needs its schema: give --schema FILE")
    name = body.get("name")
    if not isinstance(name, str) or not name:
        raise UsageWrong('a topic needs a name: give TOPIC, or "name" in the file')
    if not name.rpartition(".")[0]:
        raise UsageWrong(f"topic '{name}': expected group.topic, for example shop.{name}")
    return body


def ensure_group(group: str) -> None:
    """Create the group if it does not exist."""
    try:
        management().post("/groups", {"groupName": group})
    except Refusal as refusal:
        if refusal.code != "GROUP_ALREADY_EXISTS":
            raise


@management_command(
    app, "hermes topic list", "hermes topic list --group shop --output json", name="list"
)
def list_topics(
    group: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="Only this group's.", autocompletion=completed("group")),
    ] = None,
    tracked: Annotated[bool, typer.Option("--tracked", help="Only those with tracking.")] = False,
) -> None:
    """List the topics."""
    params = {} if group is None else {"groupName": group}
    if tracked:
        params["tracked"] = "true"
    show_names(management().get("/topics", params), "Topic")


@management_command(app, "hermes topic show shop.orders")
def show(topic: TopicArgument) -> None:
    """Show a topic."""
    show_answer(management().get(topic_path(topic)), _show_topic)


def _show_topic(found: Fields) -> None:
    # The server leaves the default out.
    if found.setdefault("durability", Durability.EVENTUAL.value) == Durability.PERFORMANCE:
        found["durability"] += " (in memory only, lost with the node)"
        found.pop("ack", None)
    show_fields(found)


@management_command(
    app,
    "hermes topic update shop.orders ack=ALL retentionTime.duration=2",
    "hermes topic update shop.orders description='all orders'",
    'hermes topic update a.b contentType=AVRO migratedFromJsonType=true schema="$(cat s.avsc)"',
    "hermes topic update shop.orders --from-file patch.json",
)
def update(
    topic: TopicArgument, pairs: PatchArgument = None, from_file: FromFileOption = None
) -> None:
    """Update some fields of a topic; the others stay. Pairs override the file."""
    resource.update(topic_path(topic), pairs, from_file, f"topic {topic}")


@management_command(app, "hermes topic delete shop.orders --yes")
def delete(topic: TopicArgument, yes: YesOption = False) -> None:
    """Delete a topic that has no subscriptions, with its messages."""
    resource.delete(topic_path(topic), topic, f"topic {topic}", yes, also=" and its messages")
