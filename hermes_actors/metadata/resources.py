"""Shows changes of registers to people and programs, with the paths of the REST API."""

from typing import Any

from msgspec.structs import asdict

from hermes_actors.metadata.audit import differing, shown
from hermes_actors.metadata.keys import (
    GROUP,
    OAUTH,
    READINESS,
    REDRIVE,
    SEEK,
    SUBSCRIPTION,
    TOPIC,
)
from hermes_actors.metadata.schemas import COMPATIBILITY, SCHEMA, SUBJECT
from hermes_actors.metadata.trail import Entry, Place
from hermes_actors.metadata.workload import CONSTRAINT, DRAIN
from hermes_actors.model.moments import iso_ms
from hermes_actors.model.redaction import without_secret_fields

_OF_SUBSCRIPTION = "topics/{}.{}/subscriptions/{}"
_PATHS = {
    GROUP: "groups/{}",
    TOPIC: "topics/{}.{}",
    SUBSCRIPTION: _OF_SUBSCRIPTION,
    SEEK: f"{_OF_SUBSCRIPTION}/retransmission",
    REDRIVE: f"{_OF_SUBSCRIPTION}/dead-letters/redrive",
    OAUTH: "oauth/providers/{}",
    READINESS: "readiness/datacenters/{}",
    DRAIN: "balancer/drains/{}/{}",
    COMPATIBILITY: "schema-registry/config/{}",
    SCHEMA: "schema-registry/schemas/ids/{}",
    SUBJECT: "schema-registry/subjects/{}/versions/{}",
}
# Of no interest to those who read changes.
_BOOKKEEPING = ("modifiedAt", "topicIncarnation", "creation")


def resource_of(key: str) -> str:
    """The path of a register's resource in the REST API, without the first slash; the key if there
    is none. Names are escaped as in the key.
    """
    kind, *names = key.split("/")
    path = _PATHS.get(kind, "")
    if kind == CONSTRAINT:
        of = "subscription/{}.{}/{}" if names[2:] else "topic/{}.{}"
        path = f"workload-constraints/{of}"
    if kind in (SEEK, REDRIVE):
        del names[3:]
    return path.format(*names) if path and path.count("{}") == len(names) else key


def resource_problem(wanted: str) -> str:
    """Why nothing can be at, or below, this path; empty if something can."""
    forms = [*_PATHS.values(), "workload-constraints/topic/{}.{}"]
    known = {each.partition("/")[0] for each in forms} | {"restored"}
    if not wanted or wanted.partition("/")[0] in known:
        return ""
    named = ", ".join(form.replace("{}", "…") for form in forms)
    return f"resource '{wanted}' is unknown; expected a path of the API: {named}"


def concerns(resource: str, wanted: str) -> bool:
    """True if the resource is `wanted`, is below it, or belongs to the topic `wanted`: its schemas
    and constraints.
    """
    if not wanted or f"{resource}/".startswith(f"{wanted}/"):
        return True
    start, _, topic = wanted.partition("/")
    return (
        start == "topics"
        and resource.startswith(("schema-registry/", "workload-constraints/"))
        and topic in resource.split("/")[2:3]
    )


def place_text(dc: str, place: Place) -> str:
    """The id of an entry: the datacentre in whose log it lies, and its place there."""
    offset, index = place
    return f"{dc}:{offset}.{index}" if index else f"{dc}:{offset}"


def parse_place(text: str) -> tuple[str, Place]:
    """Parse the id of an entry to datacentre and place. Raises ValueError."""
    dc, _, numbers = text.rpartition(":")
    offset, _, index = numbers.partition(".")
    return dc, (int(offset), int(index or 0))


def as_json(entry: Entry, dc: str) -> dict[str, Any]:
    """An entry of this datacentre's log as JSON: the fields that differ, secrets masked."""
    before, after = differing(_body(entry.before), _body(entry.after))
    fields = {
        "id": place_text(dc, entry.place),
        "time": iso_ms(entry.time_ms),
        "datacenter": entry.dc,
        "resource": resource_of(entry.key),
        "action": entry.action,
        **asdict(entry.author),
        "before": without_secret_fields(before),
        "after": without_secret_fields(after),
    }
    if entry.winner is not None:
        fields["overruledBy"] = {"datacenter": entry.winner.dc, **asdict(entry.winner.author)}
    return fields


def _body(body: bytes | None) -> Any:
    """A body as the REST API shows the resource, roughly."""
    found = shown(body)
    if not isinstance(found, dict):
        return found
    subscription = found.get("subscription")
    if isinstance(subscription, dict):
        found = subscription | found
        del found["subscription"]
    return {name: value for name, value in found.items() if name not in _BOOKKEEPING}
