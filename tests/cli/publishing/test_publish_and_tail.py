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


def test_an_unreachable_node_is_one_failure_for_all_messages(hermes):
    result = hermes(
        "publish", "a.b", "--publish-url", "http://127.0.0.1:1", "--retries", "0", stdin="1\n2\n3\n"
    )
    assert result.exit_code == 1
    assert "cannot reach http://127.0.0.1:1" in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("1", "--file", "x"),
        ("--lines", "none-such.ndjson"),
        ("--file", "none-such.json"),
        ("1", "--key", "a", "--key-field", "b"),
        ("1", "--key", "a\nb"),
        ("1", "--header", "contain a colon"),
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
    with pytest.raises(CommandFailed, match="not a message"):
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


def test_messages_have_the_form_that_is_asked_for(hermes, server):
    odd = MESSAGE | {"key": None, "body": "\x1b[2J", "headers": {"Trace": "t"}}
    lines = b"".join(json.dumps(each).encode() + b"\n" for each in (MESSAGE, odd))
    server.on("GET /topics/a.b/messages?follow=false&last=2", (200, lines))
    form = "{time}\\t{offset} {key} {headers} {{{body}}}"
    assert hermes("tail", "a.b", "-n", "2", "--format", form).stdout.splitlines() == [
        '2026-01-01T00:00:00.123Z\t42 k {} {{"a":1}}',
        '2026-01-01T00:00:00.123Z\t42 - {"Trace": "t"} {\\x1b[2J}',
    ]
