"""Documents that would take long are refused before they are validated; others have their time."""

from pathlib import Path

import trio

from hermes_actors.management.graphql import endpoint
from hermes_actors.management.graphql.schema import schema
from tests.management.graphql.asking import ask, data, error

SCHEMA = Path(endpoint.__file__).with_name("schema.graphql")


def test_the_printed_schema_is_kept():
    printed = schema().as_str() + "\n"
    assert SCHEMA.read_text() == printed, "run make graphql"


async def refusal(api, query, **variables):
    answer = await ask(api, query, **variables)
    assert answer["data"] is None
    return answer["errors"][0]["message"]


async def test_a_query_that_is_too_deep_is_refused(api):
    def nested(levels, inner):
        return '{ __type(name: "Topic") ' + "{ ofType " * levels + inner + " }" * levels + " }"

    refused = "The query has 16 levels, and the most is 15"
    assert await refusal(api, nested(14, "{ name }")) == refused
    assert (await data(api, nested(13, "{ name }")))["__type"]
    part = "fragment f on __Type { ofType { ofType { name } } }"
    assert await refusal(api, nested(12, "{ ...f }") + part) == refused


async def test_a_query_that_costs_too_much_is_refused(api):
    await api.with_topic()
    query = "query($n: Int) { topics(limit: $n) { subscriptions(limit: 100) { lag { lag } } } }"
    assert "query costs 100505, and the most is 20000; " in await refusal(api, query, n=100)
    assert await data(api, query, n=9)
    # Not given, or nothing: counted as the most.
    assert "query costs 502505" in await refusal(api, query)
    assert "query costs 502505" in await refusal(api, query, n="many")
    lists = " ".join(f"a{n}: topics(limit: 9) {{ name b: schema }}" for n in range(60))
    assert await data(api, f"{{ {lists} }}")
    lists = lists.replace("limit: 9", "limit: 99")
    assert "query costs 35940" in await refusal(api, f"{{ {lists} }}")


async def test_a_query_with_too_many_words_is_refused(api):
    assert "1000 tokens" in await refusal(api, "{" + "a " * 1_000 + "}")


async def test_a_result_that_is_too_long_is_refused(api, monkeypatch):
    await api.with_topic(description="d" * 100)
    many = " ".join(f"a{n}: description" for n in range(10))
    query = f'{{ topic(name: "shop.orders") {{ {many} }} }}'
    assert await data(api, query)
    monkeypatch.setattr(endpoint, "RESULT_CHARACTERS_MAX", 1_000)
    answer = await api.post("/graphql", {"query": query})
    assert api.refusal(answer) == (400, "VALIDATION_ERROR")
    assert api.message(answer) == "The result is longer than 1000 characters"


async def test_fragments_in_fragments_are_measured_once(api):
    parts = [f"fragment f{n} on Query {{ ...f{n + 1} ...f{n + 1} }}" for n in range(90)]
    last = "fragment f90 on Query { groups(limit: 1) { groupName } }"
    # One by one they would be 2 ** 90.
    assert f"query costs {6 * 2**90}, " in await refusal(api, " ".join(["{ ...f0 }", *parts, last]))


async def test_fragments_that_contain_themselves_are_refused(api):
    query = "{ ...a } fragment a on Query { ...b } fragment b on Query { ...a }"
    assert "within itself" in await refusal(api, query)


async def test_fragments_without_names_are_levels_too(api):
    def nested(levels, inner):
        return "{ " + "... { " * levels + inner + " }" * (levels + 1)

    assert "nested too deeply" in await refusal(api, nested(320, "__typename"))
    one, other = (nested(levels, inner) for levels, inner in ((155, "...f"), (150, "__typename")))
    assert "306 levels" in await refusal(api, f"{one} fragment f on Query {other}")


async def test_an_operation_has_its_time(api, monkeypatch):
    await api.with_topic()

    async def forever(_):
        await trio.sleep_forever()

    # The next operation may take longer than this on a busy machine.
    with monkeypatch.context() as during:
        during.setattr(endpoint, "TIMEOUT_S", 0.05)
        during.setattr(api.administration.topics, "get", forever)
        answer = await api.post("/graphql", {"query": '{ topic(name: "shop.orders") { name } }'})
    assert answer.status_code == 503
    assert "It took longer than" in api.message(answer)
    assert await error(api, "{ topics { nothing } }")
