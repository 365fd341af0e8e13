"""`hermes schema show|push|check|diff`."""

import json

import pytest

SUBJECT = "/schema-registry/subjects/shop.orders"
CLOSED = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}
WIDER = {"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": False}


@pytest.fixture
def file(tmp_path):
    def write(schema: object) -> str:
        path = tmp_path / "new.json"
        path.write_text(json.dumps(schema))
        return str(path)

    return write


@pytest.fixture
def known(server):
    """The topic's newest version is the first, and closed."""
    text = json.dumps(CLOSED)
    server.on("GET /topics/shop.orders", (200, {"name": "shop.orders"}))
    server.on("GET /topics/shop.orders/subscriptions", (200, ["audit", "billing"]))
    server.on("GET /schema-registry/subjects", (200, ["shop.orders"]))
    newest = {
        "subject": "shop.orders",
        "version": 1,
        "id": 77,
        "schemaType": "JSON",
        "schema": text,
    }
    server.on(f"GET {SUBJECT}/versions/latest", (200, newest))
    server.on(f"GET {SUBJECT}/versions/1", (200, newest))
    return server


def compatibility(server, is_compatible: bool, *messages: str) -> None:
    path = "/schema-registry/compatibility/subjects/shop.orders/versions?verbose=true"
    answer = {"is_compatible": is_compatible, "messages": list(messages)}
    server.on(f"POST {path}", (200, answer))


def test_push_registers_the_file_and_says_version_and_id(hermes, known, file):
    known.on(f"POST {SUBJECT}/versions", (200, {"id": 78}))
    known.on(f"POST {SUBJECT}", (200, {"version": 2, "id": 78}))
    result = hermes("schema", "push", "shop.orders", file(WIDER))
    assert result.stdout == "topic shop.orders: version 2, id 78\n"
    pushed = next(each for each in known.calls if each.path == f"{SUBJECT}/versions")
    assert pushed.json() == {"schemaType": "JSON", "schema": json.dumps(WIDER)}


def test_push_to_a_topic_that_is_not_there_registers_nothing(hermes, server, file):
    server.on("GET /topics/shop.ordres", (404, {"message": "no", "code": "TOPIC_NOT_EXISTS"}))
    result = hermes("schema", "push", "shop.ordres", file(WIDER))
    assert result.exit_code == 1
    assert server.made() == ["GET /topics/shop.ordres"]


def test_check_names_the_subscriptions_that_might_get_something_new(hermes, known, file):
    compatibility(known, True)
    result = hermes("schema", "check", "shop.orders", file(WIDER))
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "would be accepted: it is compatible with earlier versions at the topic's level",
        "subscriptions that might get messages they do not know yet: audit, billing",
    ]


def test_check_fails_for_what_would_be_refused_and_says_why(hermes, known, file):
    compatibility(known, False, "it cannot read messages of version 1")
    result = hermes("schema", "check", "shop.orders", file({**CLOSED, "required": ["a"]}))
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "would be refused: it cannot read messages of version 1",
        "publishers: messages that shop.orders accepts now might be refused",
    ]


def test_check_of_a_topics_first_schema_breaks_nothing_known(hermes, known, file):
    known.on("GET /schema-registry/subjects", (200, []))
    assert hermes("schema", "check", "shop.orders", file(CLOSED)).exit_code == 0


def test_check_says_what_is_wrong_with_a_file_that_is_no_schema(hermes, known, file):
    result = hermes("schema", "check", "shop.orders", file({"type": "strin"}))
    assert result.exit_code == 2
    assert "not a JSON Schema: type" in result.stderr
    missing = hermes("schema", "check", "shop.orders", "/nowhere/at/all.json")
    assert missing.exit_code == 2


def test_diff_shows_the_lines_that_come_and_go(hermes, known, file):
    result = hermes("schema", "diff", "shop.orders", file(WIDER))
    assert result.exit_code == 0
    added = [line for line in result.stdout.splitlines() if line.startswith("+ ")]
    assert '+    "b": {}' in added
    assert hermes("schema", "diff", "shop.orders").exit_code == 2
    assert hermes("schema", "diff", "shop.orders", "--version", "1").stdout == ""


AGE = {"name": "age", "type": "int"}
FIRST = {"type": "record", "name": "Visit", "fields": [AGE]}
NOTED = {**FIRST, "fields": [AGE, {"name": "note", "type": "string", "default": ""}]}
LONGER = {**FIRST, "fields": [{**AGE, "type": "long"}]}


@pytest.fixture
def avro(known):
    """The topic is AVRO."""
    known.on("GET /topics/shop.orders", (200, {"name": "shop.orders", "contentType": "AVRO"}))
    # As Confluent's registry leaves the kind out.
    newest = {"subject": "shop.orders", "version": 1, "id": 77, "schema": json.dumps(FIRST)}
    known.on(f"GET {SUBJECT}/versions/latest", (200, newest))
    return known


def test_push_to_an_avro_topic_registers_an_avro_schema(hermes, avro, file):
    avro.on(f"POST {SUBJECT}/versions", (200, {"id": 78}))
    avro.on(f"POST {SUBJECT}", (200, {"version": 2, "id": 78}))
    assert hermes("schema", "push", "shop.orders", file(NOTED)).exit_code == 0
    pushed = next(each for each in avro.calls if each.path == f"{SUBJECT}/versions")
    assert pushed.json() == {"schemaType": "AVRO", "schema": json.dumps(NOTED)}


def test_check_compares_avro_schemas_by_avros_rules(hermes, avro, file):
    compatibility(avro, True)
    noted = hermes("schema", "check", "shop.orders", file(NOTED))
    assert noted.stdout.splitlines() == [
        "would be accepted: it is compatible with earlier versions at the topic's level"
    ]
    longer = hermes("schema", "check", "shop.orders", file(LONGER))
    assert longer.stdout.splitlines()[1:] == [
        "subscriptions that might get messages they do not know yet: audit, billing"
    ]
