"""Filters over the API: which are refused with a subscription, and what a message passes."""

import base64
import json

import msgspec
import pytest

from hermes_actors.config.publishing import PropagationConfig

PATH = "/filters/shop.orders"
COUNTRY = {"type": "jsonpath", "path": "$.country", "matcher": "PL|DE"}
HEADER = {"type": "header", "header": "Channel", "matcher": "web"}


def asking(message: bytes, *filters, **more) -> dict:
    return {"filters": list(filters), "message": base64.b64encode(message).decode(), **more}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (asking(b'{"country":"PL"}', COUNTRY), "MATCHED"),
        (asking(b'{"country":"FR"}', COUNTRY), "NOT_MATCHED"),
        (asking(b'{"country":null}', COUNTRY), "NOT_MATCHED"),
        (asking(b"not JSON", COUNTRY), "NOT_MATCHED"),
        (asking(b"", COUNTRY), "NOT_MATCHED"),
        (asking(b"not JSON"), "MATCHED"),
        (asking(b'{"country":"PL"}', COUNTRY, HEADER), "NOT_MATCHED"),
        (asking(b'{"country":"PL"}', COUNTRY, HEADER, headers={"Channel": "web"}), "MATCHED"),
        (asking(b'{"country":"PL"}', COUNTRY, HEADER, headers={"channel": "web"}), "NOT_MATCHED"),
    ],
)
async def test_a_message_is_tried_on_filters(api, body, status) -> None:
    await api.with_topic()
    answer = await api.post(PATH, body)
    assert (answer.status_code, answer.json()["status"]) == (200, status)


VISIT = {
    "type": "record",
    "name": "Visit",
    "fields": [
        {
            "name": "__metadata",
            "type": ["null", {"type": "map", "values": "string"}],
            "default": None,
        },
        {"name": "country", "type": ["null", "string"]},
        {"name": "pages", "type": {"type": "array", "items": "int"}, "default": []},
    ],
}
BY_PATH = {"type": "avropath", "path": ".country", "matcher": "PL|DE"}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (asking(b'{"country":"PL"}', BY_PATH), "MATCHED"),
        (asking(b'{"country":"FR"}', BY_PATH), "NOT_MATCHED"),
        (asking(b'{"country":null}', {**BY_PATH, "matcher": "null"}), "MATCHED"),
        (
            asking(
                b'{"country":"PL","pages":[1,2]}', {**BY_PATH, "path": "pages[1]", "matcher": "2"}
            ),
            "MATCHED",
        ),
        (asking(b'{"country":"PL"}', BY_PATH, HEADER), "NOT_MATCHED"),
        (asking(b'{"country":"PL"}', BY_PATH, HEADER, headers={"Channel": "web"}), "MATCHED"),
    ],
)
async def test_a_message_of_an_avro_topic_is_tried_as_it_will_be_stored(api, body, status) -> None:
    await api.with_topic(contentType="AVRO", schema=json.dumps(VISIT))
    answer = await api.post(PATH, body)
    assert (answer.status_code, answer.json()["status"]) == (200, status)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"not JSON", "Failed to parse json to map format."),
        (b"[1]", "Failed to parse json to map format."),
        (b"", "Failed to parse json to map format."),
        (b'{"country":5}', "country"),
        (b"{}", "Failed to convert JSON to Avro"),
    ],
)
async def test_a_message_that_an_avro_topic_would_not_take_is_an_error(api, message, words) -> None:
    await api.with_topic(contentType="AVRO", schema=json.dumps(VISIT))
    answer = (await api.post(PATH, asking(message, BY_PATH))).json()
    assert answer["status"] == "ERROR"
    assert words in answer["errorMessage"]


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (asking(b"{}", {**COUNTRY, "matcher": "("}), "OTHER", "FilterTest.filters[0].matcher"),
        (asking(b"{}", COUNTRY, {**COUNTRY, "path": "$."}), "OTHER", "FilterTest.filters[1].path"),
        (asking(b"{}", {"type": "avropath", "path": ".a", "matcher": ""}), None, "avropath"),
        ({"filters": [], "message": "#"}, None, "FilterTest.message must be Base64"),
        ({"filters": []}, None, "FilterTest.message must not be null"),
        ({"filters": [{}], "message": ""}, "FORMAT_ERROR", "FilterTest.filters[0]: Object missing"),
    ],
)
async def test_what_cannot_be_tried_is_refused_by_the_name_of_its_field(
    api, body, code, words
) -> None:
    await api.with_topic()
    answer = await api.post(PATH, body)
    assert api.refusal(answer) == (400, code or "VALIDATION_ERROR")
    assert words in answer.json()["message"]


async def test_filters_are_tried_while_management_is_read_only(api) -> None:
    await api.with_topic()
    assert (await api.post("/mode?mode=readOnly", None)).status_code == 200
    assert (await api.post(PATH, asking(b"{}"))).status_code == 200


async def test_a_filter_by_a_header_that_does_not_travel_has_a_warning(api) -> None:
    await api.with_topic()
    for propagation, words in (
        (PropagationConfig(), "frontend.propagation.enabled"),
        (PropagationConfig(enabled=True, allowed=["country"]), "frontend.propagation.allowed"),
        (PropagationConfig(enabled=True), ""),
    ):
        frontend = msgspec.structs.replace(api.config.frontend, propagation=propagation)
        api.administered_with(config=msgspec.structs.replace(api.config, frontend=frontend))
        answer = await api.post(PATH, asking(b"{}", HEADER, headers={"Channel": "web"}))
        found = answer.json()
        assert found["status"] == "MATCHED"
        assert words in "".join(found.get("warnings", []))
        assert ("warnings" in found) is bool(words)
