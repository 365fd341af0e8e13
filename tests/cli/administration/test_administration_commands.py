import json

import pytest


def owner(text="dev"):
    return {"source": "Plaintext", "id": text}


def test_a_group_is_created_with_its_name(hermes, server):
    server.on("POST /groups", (201, b""))
    result = hermes("group", "create", "shop")
    assert result.exit_code == 0
    assert result.stdout == "created group shop\n"
    assert server.calls[0].json() == {"groupName": "shop"}


def test_a_list_as_json_is_the_servers_own_bytes(hermes, server):
    server.on("GET /groups", (200, b'["b",  "a"]'))
    assert hermes("group", "list", "-o", "json").stdout == '["b",  "a"]\n'


def test_a_list_as_table_has_a_row_for_each_name(hermes, server):
    server.on("GET /topics?groupName=shop", (200, ["shop.a", "shop.b"]))
    result = hermes("topic", "list", "--group", "shop")
    assert [line.strip() for line in result.stdout.splitlines()] == ["Topic", "shop.a", "shop.b"]


def test_an_empty_list_says_so(hermes, server):
    server.on("GET /topics", (200, []))
    assert hermes("topic", "list").stdout == "no topics\n"


def test_an_object_as_table_shows_nested_fields_by_dotted_names(hermes, server):
    shown = {"name": "a.b", "owner": {"source": "S", "id": "[red]x"}, "auth": {}}
    server.on("GET /topics/a.b", (200, shown))
    lines = hermes("topic", "show", "a.b").stdout.splitlines()
    rows = [line.strip().split(maxsplit=1) for line in lines]
    assert rows == [["name", "a.b"], ["owner.source", "S"], ["owner.id", "[red]x"], ["auth", "{}"]]


def test_a_topic_needs_only_a_name_for_development(hermes, server):
    server.on("POST /topics", (201, b""))
    assert hermes("topic", "create", "shop.orders").exit_code == 0
    assert server.calls[0].json() == {
        "name": "shop.orders",
        "description": "",
        "owner": owner(),
        "contentType": "JSON",
        "retentionTime": {"duration": 1, "retentionUnit": "DAYS"},
        "ack": "LEADER",
        "maxMessageSize": 51200,
    }


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


def test_a_topic_can_come_wholly_from_stdin(hermes, server):
    server.on("POST /topics", (201, b""))
    assert hermes("topic", "create", "--from-file", "-", stdin='{"name":"a.b"}').exit_code == 0
    assert server.calls[0].json()["name"] == "a.b"


def test_creating_as_json_shows_the_object_as_it_now_is(hermes, server):
    server.on("POST /topics", (201, b""))
    server.on("GET /topics/a.b", (200, b'{"name":"a.b"}'))
    assert hermes("topic", "create", "a.b", "-o", "json").stdout == '{"name":"a.b"}\n'


def test_a_creation_that_cannot_be_read_back_is_still_done(hermes, server):
    server.on("POST /topics", (201, b""))
    result = hermes("topic", "create", "a.b", "-o", "json")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "warning: created topic a.b, but" in result.stderr


def test_create_group_takes_a_group_that_is_there_already(hermes, server):
    server.on("POST /groups", (400, {"message": "is there", "code": "GROUP_ALREADY_EXISTS"}))
    server.on("POST /topics", (201, b""))
    assert hermes("topic", "create", "a.b.c", "--create-group").exit_code == 0
    assert server.calls[0].json() == {"groupName": "a.b"}


def test_a_topic_that_is_there_already_names_the_way_out(hermes, server):
    server.on("POST /topics", (400, {"message": "is there", "code": "TOPIC_ALREADY_EXISTS"}))
    result = hermes("topic", "create", "a.b.c")
    assert result.exit_code == 1
    assert "is there; change it with 'hermes topic update'" in result.stderr


def test_create_group_fails_when_the_group_is_refused(hermes, server):
    server.on("POST /groups", (400, {"message": "bad", "code": "GROUP_NAME_IS_INVALID"}))
    result = hermes("topic", "create", "a.b", "--create-group")
    assert result.exit_code == 1
    assert server.made() == ["POST /groups"]


def test_a_subscription_is_created_with_the_policy_that_was_given(hermes, server):
    server.on("POST /topics/a.b/subscriptions", (201, b""))
    result = hermes(
        "subscription", "create", "a.b", "s", "--endpoint", "http://x/", "--rate", "50",
        "--request-timeout-ms", "2000", "--retry-client-errors",
    )  # fmt: skip
    assert result.stdout == "created subscription s of a.b\n"
    assert server.calls[0].json() == {
        "description": "",
        "owner": owner(),
        "topicName": "a.b",
        "name": "s",
        "endpoint": "http://x/",
        "subscriptionPolicy": {"rate": 50, "requestTimeout": 2000, "retryClientErrors": True},
    }


def test_a_subscription_without_an_endpoint_is_a_usage_error(hermes, server):
    result = hermes("subscription", "create", "a.b", "s")
    assert result.exit_code == 2
    assert "--endpoint" in result.stderr
    assert server.calls == []


def test_a_copy_of_a_suspended_subscription_is_suspended(hermes, server, tmp_path):
    file = tmp_path / "subscription.json"
    shown = {"name": "s", "endpoint": "http://x/", "state": "SUSPENDED", "createdAt": 1.5}
    file.write_text(json.dumps(shown))
    server.on("POST /topics/a.b/subscriptions", (201, b""))
    assert hermes("subscription", "create", "a.b", "--from-file", str(file)).exit_code == 0
    body = server.calls[0].json()
    assert body["state"] == "SUSPENDED"
    assert "createdAt" not in body


def test_suspending_and_activating_put_the_state(hermes, server):
    server.on("PUT /topics/a.b/subscriptions/s/state", (200, b""))
    assert hermes("subscription", "suspend", "a.b", "s").exit_code == 0
    assert hermes("subscription", "activate", "a.b", "s").exit_code == 0
    assert [call.json() for call in server.calls] == ["SUSPENDED", "ACTIVE"]


def test_an_update_sends_only_what_was_given(hermes, server, tmp_path):
    file = tmp_path / "patch.json"
    file.write_text('{"subscriptionPolicy": {"rate": 1, "messageTtl": 7}}')
    server.on("PUT /topics/a.b/subscriptions/s", (200, b""))
    hermes(
        "subscription", "update", "a.b", "s", "subscriptionPolicy.rate=50",
        "--from-file", str(file),
    )  # fmt: skip
    assert server.calls[0].json() == {"subscriptionPolicy": {"rate": 50, "messageTtl": 7}}


def test_an_empty_update_is_a_usage_error(hermes, server):
    result = hermes("topic", "update", "a.b")
    assert result.exit_code == 2
    assert "nothing to update" in result.stderr
    assert server.calls == []


def test_deleting_without_a_terminal_needs_yes(hermes, server):
    result = hermes("topic", "delete", "a.b")
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert server.calls == []


def test_deleting_with_yes_deletes(hermes, server):
    server.on("DELETE /topics/a.b", (200, b""))
    result = hermes("topic", "delete", "a.b", "--yes")
    assert result.stdout == "deleted topic a.b\n"
    assert server.made() == ["DELETE /topics/a.b"]


def test_a_name_with_a_slash_stays_one_path_segment(hermes, server):
    hermes("topic", "show", "a/../groups")
    assert server.made() == ["GET /topics/a%2F..%2Fgroups"]


def test_a_refusal_names_status_code_text_and_a_way_out(hermes, server):
    server.on("POST /topics", (404, {"message": "no group a", "code": "GROUP_NOT_EXISTS"}))
    result = hermes("topic", "create", "a.b")
    assert result.exit_code == 1
    assert result.stderr == (
        "hermes: the server refused POST /topics (404 GROUP_NOT_EXISTS): no group a; "
        "create it with 'hermes group create', or see 'hermes group list'\n"
    )


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


def test_a_url_without_a_scheme_is_a_usage_error(hermes):
    result = hermes("group", "list", "--management", "localhost:8090")
    assert result.exit_code == 2
    assert "expected a URL" in result.stderr


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


@pytest.mark.parametrize("command", [["topic", "list"], ["topic", "show", "a.b"]])
def test_an_answer_that_is_not_json_is_one_line(hermes, server, command):
    server.on("GET /topics", (200, b"<html>welcome</html>"))
    server.on("GET /topics/a.b", (200, b"<html>welcome</html>"))
    result = hermes(*command)
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "is that URL a management API (default port 8090)?" in result.stderr


def test_an_empty_answer_is_said_to_be_empty(hermes, server):
    server.on("GET /topics", (200, b""))
    result = hermes("topic", "list")
    assert result.exit_code == 1
    assert result.stderr == (
        "hermes: the server's answer is not JSON but empty; "
        "is that URL a management API (default port 8090)?\n"
    )


@pytest.mark.parametrize(
    ("command", "request_line"),
    [
        (["topic", "list"], "GET /topics"),
        (["topic", "create", "a.b"], "POST /topics"),
        (["topic", "show", "a.b"], "GET /topics/a.b"),
        (["tail", "a.b"], "GET /topics/a.b/messages?from=end&follow=true"),
    ],
)
@pytest.mark.parametrize("status", [404, 405])
def test_a_bare_404_or_405_asks_whether_that_is_a_management_api(
    hermes, server, command, request_line, status
):
    server.on(request_line, (status, b""))
    result = hermes(*command)
    assert result.exit_code == 1
    assert result.stderr.endswith(f"; is {server.url} a management API (default port 8090)?\n")
    assert len(result.stderr.splitlines()) == 1


def test_a_404_that_explains_itself_gets_no_such_question(hermes, server):
    server.on("GET /topics/a.b", (404, {"message": "no a.b", "code": "TOPIC_NOT_EXISTS"}))
    assert "management API" not in hermes("topic", "show", "a.b").stderr


@pytest.mark.parametrize(
    ("code", "command"),
    [("GROUP_NOT_EMPTY", ["group", "delete", "a"]), ("TOPIC_NOT_EMPTY", ["topic", "delete", "a"])],
)
def test_advice_that_the_server_gave_is_not_given_twice(hermes, server, code, command):
    server.on(f"DELETE /{command[0]}s/a", (403, {"message": "x; remove them first", "code": code}))
    assert hermes(*command, "--yes").stderr.endswith(": x; remove them first\n")


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


@pytest.mark.parametrize("output", ["table", "json"])
def test_an_update_warns_of_each_field_that_the_server_does_not_know(hermes, server, output):
    path = "/topics/a.b/subscriptions/s"
    server.on(f"PUT {path}", (200, b""))
    server.on(f"GET {path}", (200, SHOWN))
    result = hermes(
        "subscription", "update", "a.b", "s", "subscriptionPolicy.rat=5", "rate=1",
        "subscriptionPolicy.rate=5", "filters=[]", "-o", output,
    )  # fmt: skip
    assert result.exit_code == 0
    first, second = result.stderr.splitlines()
    assert "unknown field subscriptionPolicy.rat was ignored by the server" in first
    assert first.endswith("; did you mean subscriptionPolicy.rate?")
    assert "unknown field rate was ignored" in second
    expected = "updated subscription s of a.b" if output == "table" else json.dumps(SHOWN)
    assert result.stdout == f"{expected}\n"


def test_a_field_that_is_at_its_default_again_is_not_called_unknown(hermes, server):
    path = "/topics/a.b/subscriptions/s"
    server.on(f"PUT {path}", (200, b""))
    server.on(f"GET {path}", (200, SHOWN))
    result = hermes(
        "subscription", "update", "a.b", "s", "subscriptionPolicy.ordered=false",
        "deadLettersEnabled=true", "subscriptionPolicy.body=MESSAGES",
    )  # fmt: skip
    assert result.exit_code == 0
    (warning,) = result.stderr.splitlines()
    assert "unknown field subscriptionPolicy.body was ignored by the server" in warning


def test_a_creation_warns_of_each_field_that_the_server_does_not_know(hermes, server, tmp_path):
    file = tmp_path / "s.json"
    file.write_text('{"endpoint": "http://x/", "subscriptionPolicy": {"rate": 5, "rat": 6}}')
    server.on("POST /topics/a.b/subscriptions", (201, b""))
    shown = SHOWN | {"topicName": "a.b", "endpoint": "http://x/", "description": ""}
    server.on("GET /topics/a.b/subscriptions/s", (200, shown | {"owner": owner()}))
    result = hermes("subscription", "create", "a.b", "s", "--from-file", str(file))
    assert (result.exit_code, result.stdout) == (0, "created subscription s of a.b\n")
    assert result.stderr == (
        "hermes: warning: unknown field subscriptionPolicy.rat was ignored by the server"
        "; did you mean subscriptionPolicy.rate?\n"
    )


def test_the_rate_of_a_batch_subscription_is_its_message_rate(hermes, server):
    server.on("POST /topics/a.b/subscriptions", (201, b""))
    hermes(
        "subscription", "create", "a.b", "s", "--endpoint", "http://x/", "--rate", "50",
        "--delivery-type", "BATCH",
    )  # fmt: skip
    assert server.calls[0].json()["subscriptionPolicy"] == {"messageRate": 50}


def test_a_subscription_asks_for_avro_by_an_option(hermes, server):
    server.on("POST /topics/a.b/subscriptions", (201, b""))
    hermes(
        "subscription", "create", "a.b", "s", "--endpoint", "http://x/", "--content-type", "AVRO",
    )  # fmt: skip
    assert server.calls[0].json()["contentType"] == "AVRO"


def test_a_field_that_was_unset_may_be_gone(hermes, server):
    path = "/topics/a.b/subscriptions/s"
    server.on(f"PUT {path}", (200, b""))
    server.on(f"GET {path}", (200, SHOWN))
    result = hermes("subscription", "update", "a.b", "s", "subscriptionPolicy.inflightSize=null")
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize("kind", ["topic", "group"])
def test_topics_and_groups_are_compared_too(hermes, server, kind):
    server.on(f"PUT /{kind}s/a.b", (200, b""))
    server.on(f"GET /{kind}s/a.b", (200, {"groupName": "a.b", "ack": "ALL"}))
    result = hermes(kind, "update", "a.b", "ack=ALL", "akc=ALL")
    assert result.exit_code == 0
    assert result.stderr == (
        "hermes: warning: unknown field akc was ignored by the server; did you mean ack?\n"
    )


def test_a_table_shows_epoch_seconds_with_their_utc_time(hermes, server):
    server.on("GET /topics/a.b", (200, {"createdAt": 1767225600.5, "modifiedAt": 1e99}))
    rows = [line.split(maxsplit=1) for line in hermes("topic", "show", "a.b").stdout.splitlines()]
    assert [row[1].strip() for row in rows] == ["1767225600.5 (2026-01-01T00:00:00Z)", "1e+99"]


def test_json_keeps_epoch_seconds_as_the_server_sent_them(hermes, server):
    server.on("GET /topics/a.b", (200, b'{"createdAt": 1767225600.50}'))
    shown = hermes("topic", "show", "a.b", "-o", "json").stdout
    assert shown == '{"createdAt": 1767225600.50}\n'


def test_an_avro_topic_comes_with_the_schema_of_a_file(hermes, server, tmp_path):
    schema = tmp_path / "order.avsc"
    schema.write_text('{"type": "record", "name": "Order", "fields": []}')
    server.on("POST /topics", (201, b""))
    server.on("GET /topics/a.b", (200, {"name": "a.b"}))
    hermes("topic", "create", "a.b", "--content-type", "AVRO", "--schema", str(schema))
    sent = next(call for call in server.calls if call.path == "/topics").json()
    assert (sent["contentType"], sent["schema"]) == ("AVRO", schema.read_text())


@pytest.mark.parametrize(
    "arguments", [["--content-type", "AVRO"], ["--create-group", "--from-file", "-"]]
)
def test_an_avro_topic_without_a_schema_is_refused_at_once(hermes, server, arguments):
    result = hermes("topic", "create", "a.b", *arguments, stdin='{"contentType": "AVRO"}')
    assert result.exit_code == 2
    assert "give --schema FILE" in result.stderr
    assert server.calls == []


def test_create_sends_the_policy_beyond_hermes(hermes, server):
    path = "/topics/shop.orders/subscriptions"
    server.on(f"POST {path}", (201, b""))
    server.on(f"GET {path}/billing", (200, {}))
    options = ("--ordered", "--attempts-max", "3", "--retry-on", "409", "--discard-on", "503")
    result = hermes(
        *("subscription", "create", "shop.orders", "billing", "--endpoint", "http://a/", *options)
    )
    assert result.exit_code == 0
    assert server.calls[0].json()["subscriptionPolicy"] == {
        "ordered": True,
        "attemptsMax": 3,
        "retryOn": [409],
        "discardOn": [503],
    }
    result = hermes(
        *("subscription", "create", "shop.orders", "b", "--endpoint", "http://a/"),
        *("--ordered", "--delivery-type", "BATCH"),
    )
    assert result.exit_code == 2
