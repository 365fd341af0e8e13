import json

import pytest


def owner(text="dev"):
    return {"source": "Plaintext", "id": text}


@pytest.mark.parametrize(
    ("option", "in_file", "sent"),
    [
        ("--fallback", False, True),
        ("--no-fallback", True, False),
        ("--no-fallback", None, False),
        (None, True, True),
        (None, None, None),
    ],
)
def test_the_fallback_of_a_new_topic_is_the_option_then_the_files_then_the_servers(
    hermes, server, tmp_path, option, in_file, sent
):
    file = tmp_path / "topic.json"
    flag = {} if in_file is None else {"fallbackToRemoteDatacenterEnabled": in_file}
    file.write_text(json.dumps({"name": "a.b", **flag}))
    server.on("POST /topics", (201, b""))
    options = [] if option is None else [option]
    assert hermes("topic", "create", "--from-file", str(file), *options).exit_code == 0
    assert server.calls[0].json().get("fallbackToRemoteDatacenterEnabled") is sent


def test_topic_options_win_over_the_file_and_the_servers_own_fields_are_left_out(
    hermes, server, tmp_path
):
    file = tmp_path / "topic.json"
    file.write_text(
        json.dumps({"name": "shop.old", "description": "all", "ack": "NONE", "createdAt": 1.5})
    )
    server.on("POST /topics", (201, b""))
    hermes(
        "topic", "create", "shop.new", "--from-file", str(file), "--ack", "ALL",
        "--retention", "12h", "--owner", "Plaintext:team",
    )  # fmt: skip
    body = server.calls[0].json()
    assert body["name"] == "shop.new"
    assert body["ack"] == "ALL"
    assert body["description"] == "all"
    assert body["retentionTime"] == {"duration": 12, "retentionUnit": "HOURS"}
    assert body["owner"] == owner("team")
    assert "createdAt" not in body


def test_a_copy_of_a_suspended_subscription_is_suspended(hermes, server, tmp_path):
    file = tmp_path / "subscription.json"
    shown = {"name": "s", "endpoint": "http://x/", "state": "SUSPENDED", "createdAt": 1.5}
    file.write_text(json.dumps(shown))
    server.on("POST /topics/a.b/subscriptions", (201, b""))
    assert hermes("subscription", "create", "a.b", "--from-file", str(file)).exit_code == 0
    body = server.calls[0].json()
    assert body["state"] == "SUSPENDED"
    assert "createdAt" not in body


def test_an_update_sends_only_what_was_given(hermes, server, tmp_path):
    file = tmp_path / "patch.json"
    file.write_text('{"subscriptionPolicy": {"rate": 1, "messageTtl": 7}}')
    server.on("PUT /topics/a.b/subscriptions/s", (200, b""))
    hermes(
        "subscription", "update", "a.b", "s", "subscriptionPolicy.rate=50",
        "--from-file", str(file),
    )  # fmt: skip
    assert server.calls[0].json() == {"subscriptionPolicy": {"rate": 50, "messageTtl": 7}}


def test_a_refusal_of_another_shape_shows_its_text(hermes, server):
    server.on("GET /groups", (502, b"bad gateway\nof sorts"))
    result = hermes("group", "list")
    assert result.exit_code == 1
    assert result.stderr == "hermes: the server refused GET /groups (502): bad gateway of sorts\n"


def test_an_unreachable_server_is_one_line_with_a_way_out(hermes):
    result = hermes("group", "list", "--management", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "cannot reach management at http://127.0.0.1:1" in result.stderr
    assert "hermes dev" in result.stderr


@pytest.mark.parametrize("name", ["", ".", "..", "\udcff"])
@pytest.mark.parametrize(
    "command",
    [
        ["subscription", "delete", "a.b", "NAME", "--yes"],
        ["subscription", "show", "NAME", "c"],
        ["topic", "show", "NAME"],
        ["group", "delete", "NAME", "--yes"],
        ["publish", "NAME", "1"],
        ["tail", "NAME"],
    ],
)
def test_what_would_name_another_path_is_no_name(hermes, server, command, name):
    result = hermes(*(name if part == "NAME" else part for part in command))
    assert result.exit_code == 2
    assert "is not a name" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert server.calls == []


def test_a_value_that_is_not_utf_8_is_one_line(hermes, server):
    result = hermes("topic", "update", "a.b", "description=\udcff")
    assert result.exit_code == 2
    assert "not UTF-8" in result.stderr
    assert server.calls == []


@pytest.mark.parametrize(
    ("option", "command", "example"),
    [
        ("--management", ["group", "list"], "http://127.0.0.1:8090"),
        ("--publish-url", ["publish", "a.b", "1"], "http://127.0.0.1:8080"),
    ],
)
def test_a_url_that_is_none_is_answered_with_an_example_of_its_own(
    hermes, option, command, example
):
    result = hermes(*command, option, "127.0.0.1:1")
    assert result.stderr == f"hermes: {option} '127.0.0.1:1': expected a URL like {example}\n"


SHOWN = {"name": "s", "subscriptionPolicy": {"rate": 5}, "filters": [], "createdAt": 1767225600.5}


def test_a_creation_warns_of_each_field_that_the_server_does_not_know(hermes, server, tmp_path):
    file = tmp_path / "s.json"
    file.write_text('{"endpoint": "http://x/", "subscriptionPolicy": {"rate": 5, "rat": 6}}')
    server.on("POST /topics/a.b/subscriptions", (201, b""))
    shown = SHOWN | {"topicName": "a.b", "endpoint": "http://x/", "description": ""}
    server.on("GET /topics/a.b/subscriptions/s", (200, shown | {"owner": owner()}))
    result = hermes("subscription", "create", "a.b", "s", "--from-file", str(file))
    assert (result.exit_code, result.stdout) == (0, "created subscription s of a.b\n")
    assert result.stderr == (
        "hermes: warning: unknown field subscriptionPolicy.rat was ignored by the server\n"
    )


def test_an_avro_topic_comes_with_the_schema_of_a_file(hermes, server, tmp_path):
    schema = tmp_path / "order.avsc"
    schema.write_text('{"type": "record", "name": "Order", "fields": []}')
    server.on("POST /topics", (201, b""))
    server.on("GET /topics/a.b", (200, {"name": "a.b"}))
    hermes("topic", "create", "a.b", "--content-type", "AVRO", "--schema", str(schema))
    sent = next(call for call in server.calls if call.path == "/topics").json()
    assert (sent["contentType"], sent["schema"]) == ("AVRO", schema.read_text())
