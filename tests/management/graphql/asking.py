"""Requests of GraphQL."""

import json

from tests.management.conftest import Api


async def ask(api: Api, query: str, caller: dict[str, str] | None = None, **variables: object):
    body = {"query": query, "variables": variables}
    answer = await api.post("/graphql", body, headers=caller or {})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


async def data(api: Api, query: str, caller: dict[str, str] | None = None, **variables: object):
    answer = await ask(api, query, caller, **variables)
    assert "errors" not in answer, answer["errors"]
    return answer["data"]


async def error(api: Api, query: str, caller: dict[str, str] | None = None, **variables: object):
    """The first error's code."""
    first = (await ask(api, query, caller, **variables))["errors"][0]
    return first["extensions"]["code"]


async def events(api: Api, query: str, caller: dict[str, str] | None = None):
    """The results in the `next` events; asserts that `complete` comes at the end."""
    headers = {"accept": "text/event-stream", **(caller or {})}
    answer = await api.post("/graphql", {"query": query}, headers=headers)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *found, last, rest = answer.text.split("\n\n")
    assert (last, rest) == ("event: complete\ndata:", "")
    start = "event: next\ndata: "
    assert all(each.startswith(start) for each in found)
    return [json.loads(each.removeprefix(start)) for each in found]
