"""Forms that create and edit a subscription, with a trial of its filters on a message."""

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from litestar.handlers import HTTPRouteHandler

from hermes_actors.console.console import Console, problem_of
from hermes_actors.console.pages.subscription import BELOW, place_of
from hermes_actors.errors import Refused
from hermes_actors.management.access.roles import Caller

FILTERS_MAX = 20
"""The maximum number of filters in a form. A subscription with more keeps them unchanged."""

_POLICY = "subscriptionPolicy"
_LISTS = ("retryOn", "discardOn")
_PATHS = ["/topics/{topic:str}/subscriptions/new", f"{BELOW}/edit"]


def subscription_forms(console: Console) -> list[HTTPRouteHandler]:
    """/console/topics/{topic}/subscriptions/new and …/{name}/edit."""
    parts, sources = console.parts, console.config.management.owner_sources

    async def show(
        caller: Caller, given: Mapping[str, str], topic: str, name: str = ""
    ) -> dict[str, Any]:
        view: Mapping[str, Any] = {}
        if name:
            parts.subscriptions.owned(caller, topic, name, "change subscription")
            view = await parts.subscriptions.get(caller, topic, name)
        is_sent = "endpoint" in given
        return {
            "given": given if is_sent else dict(_flat(view)),
            "filters": _filters(given) if is_sent else view.get("filters", []),
            "filters_max": FILTERS_MAX,
            "trial": None,
            "sources": sources,
            "is_avro": parts.topics.live(topic).topic.content_type.value == "AVRO",
            "is_admin": caller.is_admin,
            **place_of(topic, name),
        }

    async def save(
        caller: Caller, given: Mapping[str, str], topic: str, name: str = ""
    ) -> tuple[str, str] | dict[str, Any]:
        if "try" in given:
            message = base64.b64encode(given.get("message", "").encode()).decode()
            asked = {"filters": _filters(given), "message": message}
            return {"trial": await parts.filter_trials.make(caller, topic, asked)}
        body = _body(given)
        if name:
            await parts.subscriptions.update(caller, topic, name, body)
            return place_of(topic, name)["base"], f"{name} is changed."
        new = body | {"topicName": topic}
        await parts.subscriptions.create(caller, topic, new)
        said = f"{new['name']} is created. It gets the messages published from now on."
        return place_of(topic, new["name"])["base"], said

    return [
        form
        for path in _PATHS
        for form in console.form(path, "subscription_form.html", show, save, _problem)
    ]


def _problem(error: Refused, given: Mapping[str, str]) -> dict[str, str]:
    """The refusal. The fields of the policy are named after the delivery type."""
    problem = problem_of(error)
    field = problem["field"].replace(_POLICY, given.get("deliveryType", ""), 1)
    return problem | {"field": field}


def _body(given: Mapping[str, str]) -> dict[str, Any]:
    """The API's body for a form. An empty field is null, so it gets its default. The fields of the
    policy are named after the delivery type; those of the other type are left out.
    """
    lines = [line.partition(":") for line in given.get("headers", "").splitlines() if line.strip()]
    headers = [{"name": name.strip(), "value": value.strip()} for name, _, value in lines]
    body: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for field, text in given.items():
        (first, _, last), value = field.partition("."), text.strip() or None
        if last:
            is_list = value is not None and last in _LISTS
            inner.setdefault(first, {})[last] = (
                text.replace(" ", "").split(",") if is_list else value
            )
        else:
            body[first] = value
    body |= inner | {"headers": headers, "description": given.get("description", "").strip()}
    body[_POLICY] = inner.get(given.get("deliveryType", ""), {})
    if "filters.0.type" in given:
        body["filters"] = _filters(given)
    return body


def _filters(given: Mapping[str, str]) -> list[dict[str, str]]:
    """The filters in the form. A row without a path and a matcher is none."""
    found = []
    for row in range(FILTERS_MAX):
        kind, at, matcher, strategy = (
            given.get(f"filters.{row}.{each}", "").strip()
            for each in ("type", "at", "matcher", "matchingStrategy")
        )
        if at or matcher:
            place = {"header" if kind == "header" else "path": at}
            found.append({"type": kind, "matcher": matcher, "matchingStrategy": strategy, **place})
    return found


def _flat(value: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, str]]:
    """The fields of a stored subscription as the form names and writes them."""
    for key, each in value.items():
        name = f"{at}{key}"
        if key == _POLICY:
            yield from _flat(each, f"{value['deliveryType']}.")
        elif key == "headers":
            yield name, "\n".join(f"{header['name']}: {header['value']}" for header in each)
        elif isinstance(each, Mapping):
            yield from _flat(each, f"{name}.")
        elif isinstance(each, list):
            yield name, ", ".join(map(str, each))
        else:
            yield name, str(each).lower() if isinstance(each, bool) else str(each)
