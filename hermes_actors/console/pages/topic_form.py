"""The forms that create and edit a topic."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from litestar.handlers import HTTPRouteHandler

from hermes_actors.console.console import SEEN, Console, problem_of, require_current
from hermes_actors.console.formats import flat
from hermes_actors.errors import Refused
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.bodies.decoding import decode_topic, json_object

FIELDS = (
    *("name", "description", "owner.source", "owner.id", "contentType", "labels"),
    *("retentionTime.duration", "retentionTime.retentionUnit", "ack", "maxMessageSize"),
    *("durability", "memoryFull"),
    *("fallbackToRemoteDatacenterEnabled", "trackingEnabled"),
    *("schema", "jsonToAvroDryRun", "migratedFromJsonType"),
    *("auth.enabled", "auth.publishers", "auth.unauthenticatedAccessEnabled"),
    *("subscribingRestricted", "offlineStorage.enabled", "offlineStorage.retentionTime.duration"),
    *("offlineStorage.retentionTime.infinite", "chaos.mode", "chaos.globalPolicy.probability"),
    *("chaos.globalPolicy.delayFrom", "chaos.globalPolicy.delayTo"),
    "chaos.globalPolicy.completeWithError",
)
"""The names of the form's fields: the paths of the topic's fields in the API."""

_JSON = "json"
_FIELD_OF = {
    "Invalid topic name": "name",
    "Group": "name",
    "Topic": "name",
    "The schema": "schema",
    "Message schema": "schema",
    "Provide an owner": "owner.id",
    "Invalid chaos policy": "chaos.globalPolicy.delayFrom",
}
"""The fields of refusals that do not begin with one, by how they begin."""


def topic_form_pages(console: Console) -> list[HTTPRouteHandler]:
    """/console/topics/new and /console/topics/{topic}/edit."""
    topics, management = console.parts.topics, console.config.management

    def shown(given: Mapping[str, str], name: str = "") -> dict[str, Any]:
        return {
            "name": name,
            "given": dict.fromkeys((*FIELDS, SEEN, _JSON), "") | dict(given),
            "fields": [each for each in (*FIELDS, _JSON) if not name or each != "name"],
            "sources": management.owner_sources,
        }

    async def stored(caller: Caller, topic: str) -> dict[str, str]:
        topics.owned(caller, topic, "change topic")
        return _given(await topics.get(topic))

    async def new(_caller: Caller, given: Mapping[str, str]) -> dict[str, Any]:
        if "name" in given or _JSON in given:
            return shown(given)
        group = given.get("group", "")
        first = {
            "name": f"{group}." if group else "",
            "description": "",
            "owner": {"source": management.owner_sources[0], "id": ""},
            "contentType": "JSON",
            "retentionTime": {"duration": 1},
        }
        fallback = management.default_fallback_to_remote_datacenter
        topic = decode_topic(first, default_fallback=fallback)
        return shown(_given(msgspec.to_builtins(topic)))

    async def create(caller: Caller, given: Mapping[str, str]) -> tuple[str, str]:
        text = given.get(_JSON, "")
        body = json_object(text.encode()) if text else _changed(given, {})
        await topics.create(caller, body)
        name = str(body["name"])
        return f"/console/topics/{quote(name)}", f"Topic {name} is created."

    async def edit(caller: Caller, given: Mapping[str, str], topic: str) -> dict[str, Any]:
        found = await stored(caller, topic)
        # Saved again, it overwrites what is stored now.
        return shown({**(given if SEEN in given else found), SEEN: found["modifiedAt"]}, topic)

    async def change(caller: Caller, given: Mapping[str, str], topic: str) -> tuple[str, str]:
        found = await stored(caller, topic)
        require_current(given, found["modifiedAt"])
        await topics.update(caller, topic, _changed(given, found))
        return f"/console/topics/{quote(topic)}", f"Topic {topic} is changed."

    return [
        *console.form("/topics/new", "topic_form.html", new, create, _problem),
        *console.form("/topics/{topic:str}/edit", "topic_form.html", edit, change, _problem),
    ]


def _given(topic: Mapping[str, Any]) -> dict[str, str]:
    """The form's fields for a topic's JSON object."""
    labels = topic.get("labels", {}).items()
    unused = {"durability": "EVENTUAL", "memoryFull": "DROP_OLDEST"}
    return unused | flat(topic) | {"labels": "\n".join(f"{label}={text}" for label, text in labels)}


def _changed(given: Mapping[str, str], found: Mapping[str, str]) -> dict[str, Any]:
    """The JSON object of the fields that differ from those found."""
    body: dict[str, Any] = {} if found else {"description": ""}
    for name in FIELDS:
        text = given.get(name, "").strip().replace("\r\n", "\n")
        is_unused = name.startswith("chaos.globalPolicy.") and given.get("chaos.mode") != "GLOBAL"
        if name == "ack":
            # The other ones decide it.
            is_unused = given.get("durability", "EVENTUAL") != "EVENTUAL"
        if name not in given or is_unused or text == found.get(name, ""):
            continue
        *path, last = name.split(".")
        place = body
        for each in path:
            place = place.setdefault(each, {})
        place[last] = _value(name, text, found.get(name, ""))
    return body


def _value(name: str, text: str, found: str) -> Any:
    match name:
        case "labels":
            return dict.fromkeys(_labels(found)) | _labels(text)
        case "auth.publishers":
            return text.split()
        case "description":
            return text
        case _:
            return text or None


def _labels(text: str) -> dict[str, Any]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {label.strip(): value.strip() for label, _, value in pairs if label.strip()}


def _problem(error: Refused, given: Mapping[str, str]) -> dict[str, str]:
    """The refusal, at the field that it concerns."""
    problem = problem_of(error)
    if problem["field"] in FIELDS:
        return problem
    if given.get(_JSON):
        return problem | {"field": _JSON}
    inner = [each for each in FIELDS if problem["field"] and each.startswith(problem["field"])]
    said = [field for start, field in _FIELD_OF.items() if error.message.startswith(start)]
    return problem | {"field": next(iter(inner + said), "")}
