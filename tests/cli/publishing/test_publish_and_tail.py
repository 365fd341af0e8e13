import gzip
import json

import pytest

from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong
from hermes_actors.cli.publishing.lines import KeyOf, LineReader
from hermes_actors.cli.tail import place, row
from hermes_actors.management.messages.tail import line_of
from hermes_actors.model.message import Message, to_record
from hermes_actors.model.record import StoredRecord

ACCEPTED = (201, b"")
REFUSED = (400, {"message": "no such thing", "code": "VALIDATION_ERROR"})
BUSY = (503, b"")


def test_a_message_is_posted_as_it_stands_and_its_id_printed(hermes, server):
    server.on("POST /topics/a.b", ACCEPTED)
    result = hermes("publish", "a.b", '{"x": "ä"}', "--key", "k", "-H", "Trace-Id: 7")
    assert result.exit_code == 0
    assert result.stdout == "id-1\n"
    assert "accepted 1, not accepted 0" in result.stderr
    (call,) = server.calls
    assert call.body == '{"x": "ä"}'.encode()
    assert call.headers["partition-key"] == "k"
    assert call.headers["trace-id"] == "7"
    assert call.headers["content-type"] == "application/json"


def test_a_key_that_is_not_ascii_travels_as_utf_8(hermes, server):
    server.on("POST /topics/a.b", ACCEPTED)
    hermes("publish", "a.b", "1", "--key", "Łódź")
    # The fake reads headers as latin-1, as HTTP libraries do; the bytes are what counts.
    assert server.calls[0].headers["partition-key"].encode("latin-1") == "Łódź".encode()


def test_a_file_is_one_message_with_all_its_lines(hermes, server, tmp_path):
    file = tmp_path / "message.json"
    file.write_bytes(b"{\n}\n")
    server.on("POST /topics/a.b", ACCEPTED)
    hermes("publish", "a.b", "--file", str(file))
    assert [call.body for call in server.calls] == [b"{\n}\n"]


def test_piped_lines_are_a_message_each_and_empty_ones_none(hermes, server):
    server.on("POST /topics/a.b", ACCEPTED)
    result = hermes("publish", "a.b", "--connections", "1", stdin='{"a":1}\r\n\n{"a":2}')
    assert result.exit_code == 0
    assert [call.body for call in server.calls] == [b'{"a":1}', b'{"a":2}']
    assert result.stdout == "id-1\nid-2\n"


def test_json_output_has_a_line_for_each_message_with_its_line_number(hermes, server):
    server.on("POST /topics/a.b", ACCEPTED)
    result = hermes("publish", "a.b", "-", "-o", "json", "--connections", "1", stdin="1\n\n2\n")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(each["number"], each["status"], each["messageId"]) for each in lines] == [
        (1, 201, "id-1"),
        (3, 201, "id-2"),
    ]


def test_one_refused_message_makes_the_exit_code_1_and_the_others_go_on(hermes, server):
    server.on("POST /topics/a.b", ACCEPTED, REFUSED, ACCEPTED)
    result = hermes("publish", "a.b", "--connections", "1", stdin="1\n2\n3\n")
    assert result.exit_code == 1
    assert len(server.calls) == 3
    assert "message 2: refused with 400: VALIDATION_ERROR: no such thing" in result.stderr
    assert result.stderr.splitlines()[-1] == "hermes: 1 message(s) were not accepted"


def test_a_202_counts_as_accepted_and_is_told_apart(hermes, server):
    server.on("POST /topics/a.b", (202, b""))
    result = hermes("publish", "a.b", "1")
    assert result.exit_code == 0
    assert "accepted 1 (1 kept on the node's disk, sent later), not accepted 0" in result.stderr
    assert json.loads(hermes("publish", "a.b", "1", "-o", "json").stdout)["isKept"] is True


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, b"", "refused with 401: credentials are needed, or those shown do not hold"),
        (403, b"", "refused with 403: this account may not publish to the topic"),
        (403, {"message": "ada may not", "code": "AUTH_ERROR"}, "403: AUTH_ERROR: ada may not"),
    ],
)
def test_a_refusal_of_who_asks_has_its_reason_and_a_way_out(hermes, server, status, body, said):
    server.on("POST /topics/a.b", (status, body))
    result = hermes("publish", "a.b", "1")
    assert result.exit_code == 1
    assert said in result.stderr
    assert "say who you are with --user" in result.stderr


@pytest.mark.parametrize("status", [401, 403, 404, 415])
def test_a_refusal_that_every_message_would_get_ends_the_run(hermes, server, status):
    server.on("POST /topics/a.b", (status, b""))
    result = hermes("publish", "a.b", "--connections", "1", stdin="1\n" * 100)
    assert result.exit_code == 1
    assert len(server.calls) == 1
    assert result.stderr.splitlines()[-1].startswith("hermes: stopped: ")


def test_a_busy_server_is_asked_again(hermes, server):
    server.on("POST /topics/a.b", BUSY, BUSY, ACCEPTED)
    result = hermes("publish", "a.b", "1", "-o", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["attempts"] == 3


def test_retries_have_an_end(hermes, server):
    server.on("POST /topics/a.b", BUSY)
    result = hermes("publish", "a.b", "1", "--retries", "1")
    assert result.exit_code == 1
    assert len(server.calls) == 2


def test_a_refusal_is_not_tried_again(hermes, server):
    server.on("POST /topics/a.b", REFUSED)
    hermes("publish", "a.b", "1")
    assert len(server.calls) == 1


def test_an_unreachable_node_is_one_failure_for_all_messages(hermes):
    result = hermes(
        "publish", "a.b", "--publish-url", "http://127.0.0.1:1", "--retries", "0", stdin="1\n2\n3\n"
    )
    assert result.exit_code == 1
    assert "cannot reach http://127.0.0.1:1" in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_a_key_field_is_read_from_each_message_and_null_is_no_key(hermes, server):
    server.on("POST /topics/a.b", ACCEPTED)
    hermes(
        "publish", "a.b", "--connections", "1", "--key-field", "c.id",
        stdin='{"c":{"id":7}}\n{"c":{"id":null}}\n{"c":{"id":"x"}}\n',
    )  # fmt: skip
    assert [call.headers.get("partition-key") for call in server.calls] == ["7", None, "x"]


def test_a_message_without_the_key_field_ends_the_run_after_those_before_it(hermes, server):
    server.on("POST /topics/a.b", ACCEPTED)
    result = hermes(
        "publish", "a.b", "--connections", "1", "--key-field", "c", stdin='{"c":1}\n{}\n{"c":2}\n'
    )
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith("hermes: message 2: has no field 'c'")
    assert [call.body for call in server.calls] == [b'{"c":1}']


@pytest.mark.parametrize(
    "arguments",
    [
        ("1", "--file", "x"),
        ("--lines", "none-such.ndjson"),
        ("--file", "none-such.json"),
        ("1", "--key", "a", "--key-field", "b"),
        ("1", "--key", "a\nb"),
        ("1", "--header", "no colon"),
        ("1", "--publish-url", "nowhere"),
    ],
)
def test_a_wrong_command_line_is_refused_before_anything_is_sent(hermes, server, arguments):
    result = hermes("publish", "a.b", *arguments)
    assert result.exit_code == 2
    assert server.calls == []
    assert len(result.stderr.splitlines()) == 1


def test_a_key_cannot_be_an_object():
    with pytest.raises(CommandFailed, match="found an object"):
        KeyOf(field="a").key(b'{"a":{}}', 1)


def test_lines_cut_anywhere_are_put_together():
    text = b"one\ntwo\r\n\nfour"
    for cut in range(len(text) + 1):
        reader = LineReader()
        lines = reader.feed(text[:cut]) + reader.feed(text[cut:]) + reader.end()
        assert lines == [b"one", b"two", b"", b"four"]


def test_an_endless_line_is_refused():
    reader = LineReader(line_bytes_max=10)
    with pytest.raises(CommandFailed, match="longer than 10 bytes"):
        reader.feed(b"x" * 11)


MESSAGE = {
    "partition": 3,
    "offset": 42,
    "timestamp": 1_767_225_600_123,
    "id": "m-1",
    "key": "k",
    "headers": {},
    "body": '{"a":1}',
}


def test_tail_prints_a_row_for_each_message(hermes, server):
    line = json.dumps(MESSAGE).encode() + b"\n"
    server.on("GET /topics/a.b/messages?from=beginning&follow=false", (200, line + b"\n" + line))
    result = hermes("tail", "a.b", "--no-follow")
    assert result.exit_code == 0
    assert result.stdout == '2026-01-01T00:00:00.123Z 3:42 m-1 key=k {"a":1}\n' * 2


def test_tail_ends_at_its_limit(hermes, server):
    request = "GET /topics/a.b/messages?from=beginning&follow=true&limit=2"
    # One more than was asked for, so that the end is the command's own.
    server.on(request, (200, b"1\n2\n3\n"))
    result = hermes("tail", "a.b", "--from", "beginning", "--limit", "2", "-o", "json")
    assert (result.exit_code, result.stdout) == (0, "1\n2\n")


def test_a_message_cannot_steer_the_terminal():
    shown = row(json.dumps(MESSAGE | {"body": "\x1b[2J\x07"}))
    assert shown.isprintable()
    assert "\\x1b[2J" in shown


@pytest.mark.parametrize(
    ("message", "end"),
    [
        (MESSAGE | {"body": {"a": "ä"}, "key": None}, 'm-1 {"a": "ä"}'),
        ({k: v for k, v in MESSAGE.items() if k != "body"} | {"bodyBase64": "AA=="}, "base64:AA=="),
        (MESSAGE | {"id": None}, '- key=k {"a":1}'),
        (MESSAGE | {"key": None, "keyBase64": "/w=="}, 'key=base64:/w== {"a":1}'),
        (MESSAGE | {"error": "no message"}, 'key=k [no message] {"a":1}'),
    ],
)
def test_rows_show_what_is_there(message, end):
    assert row(json.dumps(message)).endswith(end)


def test_a_row_is_read_from_the_lines_that_management_writes():
    message = Message(id="m-1", body=b'{"a":1}', published_at_ms=1, key=b"k")
    record = to_record(message)
    stored = StoredRecord(3, 42, MESSAGE["timestamp"], record.key, record.value, record.headers)
    assert row(line_of(stored).decode()) == '2026-01-01T00:00:00.123Z 3:42 m-1 key=k {"a":1}'


def test_a_line_that_is_no_message_is_a_failure():
    with pytest.raises(CommandFailed, match="no message"):
        row("{}")


@pytest.mark.parametrize(
    ("start", "follow", "expected"),
    [
        (None, True, "end"),
        (None, False, "beginning"),
        ("beginning", True, "beginning"),
        ("2026-01-31T13:00:00+01:00", True, "2026-01-31T13:00:00+01:00"),
        ("15m", True, "15m"),
        ("1769860800000", True, "1769860800000"),
    ],
)
def test_a_place_is_a_word_or_a_time_that_means_the_same_to_everybody(start, follow, expected):
    assert place(start, follow) == expected


def test_any_other_place_is_refused():
    with pytest.raises(UsageWrong, match=r"expected beginning, end, a time .* how long ago"):
        place("yesterday", True)


@pytest.mark.parametrize(
    ("content", "why"), [(b"not gzip", "Not a gzipped file"), (b"torn", "ended before")]
)
def test_a_gzip_file_that_cannot_be_read_is_one_line(hermes, server, tmp_path, content, why):
    server.on("POST /topics/a.b", ACCEPTED)
    file = tmp_path / "lines.gz"
    file.write_bytes(gzip.compress(b"1\n" * 1_000)[:20] if content == b"torn" else content)
    result = hermes("publish", "a.b", "--lines", str(file))
    assert result.exit_code == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith("hermes: the lines cannot be read: ")
    assert why in last


def test_a_key_field_of_a_message_that_nests_too_deep_is_one_line(hermes, server):
    result = hermes("publish", "a.b", "--key-field", "x", stdin="[" * 100_000 + "\n")
    assert result.exit_code == 1
    assert "message 1: --key-field needs JSON messages" in result.stderr.splitlines()[-1]


def test_a_key_that_is_not_utf_8_is_refused(hermes, server):
    result = hermes("publish", "a.b", "1", "--key", "\udcff")
    assert result.exit_code == 2
    assert server.calls == []


@pytest.mark.parametrize(
    "url",
    ["http://exa mple", "http://a..b", f"http://{'a' * 300}", "http://x:99999", "http://[::1"],
)
@pytest.mark.parametrize(
    "command", [["topic", "list", "--management"], ["publish", "a.b", "1", "--publish-url"]]
)
def test_a_url_that_is_none_is_one_line_with_exit_code_2(hermes, command, url):
    result = hermes(*command, url)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "expected a URL" in result.stderr


@pytest.mark.parametrize(
    "answer",
    [
        (404, b""),
        (405, b""),
        # What a management API says to a message.
        (405, {"message": "POST is not allowed on /topics/a.b", "code": "OTHER"}),
    ],
)
def test_a_node_that_knows_no_publishing_is_asked_whether_it_is_one(hermes, server, answer):
    server.on("POST /topics/a.b", answer)
    result = hermes("publish", "a.b", "1")
    assert result.exit_code == 1
    first = result.stderr.splitlines()[0]
    assert first.endswith(f"is {server.url} a publishing side (default port 8080)?")
    assert ": ;" not in first


def test_a_topic_that_is_not_there_is_no_question_of_the_port(hermes, server):
    server.on("POST /topics/a.b", (404, {"message": "no a.b", "code": "TOPIC_NOT_EXISTS"}))
    stderr = hermes("publish", "a.b", "1").stderr
    assert "publishing side" not in stderr
    assert "no a.b; create it with 'hermes topic create', or see 'hermes topic list'" in stderr


def test_what_answers_200_is_no_publishing_side(hermes, server):
    server.on("POST /topics/a.b", (200, b""))
    result = hermes("publish", "a.b", "1")
    assert result.exit_code == 1
    assert f"answered with 200: is {server.url} a publishing side" in result.stderr
    assert "refused" not in result.stderr


def test_a_summary_has_latencies_only_if_something_was_accepted(hermes, server):
    server.on("POST /topics/a.b", REFUSED)
    assert "latency" not in hermes("publish", "a.b", "1").stderr
    server.on("POST /topics/a.b", ACCEPTED)
    assert "; latency p50 " in hermes("publish", "a.b", "1").stderr


def test_messages_have_the_form_that_is_asked_for(hermes, server):
    odd = MESSAGE | {"key": None, "body": "\x1b[2J", "headers": {"Trace": "t"}}
    lines = b"".join(json.dumps(each).encode() + b"\n" for each in (MESSAGE, odd))
    server.on("GET /topics/a.b/messages?follow=false&last=2", (200, lines))
    form = "{time}\\t{offset} {key} {headers} {{{body}}}"
    assert hermes("tail", "a.b", "-n", "2", "--format", form).stdout.splitlines() == [
        '2026-01-01T00:00:00.123Z\t42 k {} {{"a":1}}',
        '2026-01-01T00:00:00.123Z\t42 - {"Trace": "t"} {\\x1b[2J}',
    ]
