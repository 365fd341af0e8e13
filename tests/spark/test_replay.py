"""A replay publishes records as they were, once, no faster than allowed, also after a kill."""

import json
from itertools import pairwise
from urllib.parse import unquote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong
from hermes_actors.cli.main import app
from hermes_actors.model.message import Envelope, Message, to_record
from hermes_actors.model.moments import moment_ms
from hermes_actors.model.record import Record
from hermes_actors.model.schema import WriterSchema
from hermes_spark.columns import schema_of
from hermes_spark.replay import selection
from hermes_spark.replay.command import _look_for
from hermes_spark.replay.journal import Journal
from hermes_spark.replay.publishing import ATTEMPTS_MAX, Candidate, Replayer, Tally
from hermes_spark.replay.request import CannotReplay, ReplayRequest, replay_request
from hermes_spark.replay.selection import (
    COLUMNS,
    candidates,
    records_of,
    rows_in_order,
    write_in_order,
)
from hermes_spark.replay.task import Task, records_for, task_of, wanted_by
from hermes_spark.snapshot import Snapshot
from tests.spark.stored_scene import native
from tests.values import stored

T0 = "2030-01-31T10:00:00.000Z"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("envelope", list(Envelope))
def test_a_record_is_published_again_as_it_was(envelope):
    message = Message("ż/1", b'{"a": 1}', 5, b"key", (("Channel", "web"), ("id", "2")), "dc1")
    request = replay_request("shop.orders", "ż/1", stored(to_record(message, envelope)), "billing")
    assert request.body == b'{"a": 1}'
    headers = [(name, value.decode()) for name, value in request.headers]
    assert headers == [
        ("Hermes-Replay-Id", "%C5%BC%2F1"),
        ("Hermes-Replay-For", "billing"),
        ("Partition-Key", "key"),
        ("Content-Type", "application/json"),
        ("Channel", "web"),
        ("id", "2"),
    ]


def test_an_event_keeps_its_attributes_and_a_trace_its_parent():
    attributes = (("specversion", "1.0"), ("subject", 'a "ż" %'), ("datacontenttype", "text/plain"))
    message = Message("1", b"x", 5, None, (), "dc1", traceparent=TRACE, attributes=attributes)
    request = replay_request("shop.orders", "1", stored(to_record(message)))
    assert dict(request.headers) == {
        "Hermes-Replay-Id": b"1",
        "traceparent": TRACE.encode(),
        "ce-specversion": b"1.0",
        "ce-subject": b"a%20%22%C5%BC%22%20%25",
        "Content-Type": b"text/plain",
    }


@pytest.mark.parametrize("framing", [b"", b"\0\0\0\0\7"])
def test_a_message_in_avro_is_sent_bare_with_its_version(framing):
    written_with = WriterSchema(3, 7, is_framed=bool(framing))
    attributes = (("specversion", "1.0"), ("datacontenttype", "application/json"))
    message = Message(
        "1", framing + b"\2\4", 5, dc="dc1", attributes=attributes, written_with=written_with
    )
    request = replay_request("shop.users", "1", stored(to_record(message)))
    assert request.body == b"\2\4"
    assert dict(request.headers) == {
        "Hermes-Replay-Id": b"1",
        "Content-Type": b"avro/binary",
        "Schema-Version": b"3",
        "ce-specversion": b"1.0",
    }


OF_THE_REQUEST = (
    ("Host", "first.test"),
    ("Content-Length", "99"),
    ("Transfer-Encoding", "chunked"),
    ("Idempotency-Key", "7"),
    ("Authorization", "Bearer old"),
    ("Expect", "100-continue"),
)


def test_headers_of_the_first_request_itself_are_not_sent_again():
    travelled = (*OF_THE_REQUEST, ("Content-Type", "text/plain"), ("Channel", "web"))
    request = replay_request(
        "shop.orders", "1", stored(to_record(Message("1", b"x", 5, None, travelled)))
    )
    assert dict(request.headers) == {
        "Hermes-Replay-Id": b"1",
        "Content-Type": b"text/plain",
        "Channel": b"web",
    }


def test_an_event_that_came_in_json_is_sent_as_headers_and_data():
    attributes = (("specversion", "1.0"), ("id", "7"))
    travelled = (("Content-Type", "application/cloudevents+json"),)
    message = Message("1", b"x", 5, None, travelled, attributes=attributes)
    names = [
        name for name, _ in replay_request("shop.orders", "1", stored(to_record(message))).headers
    ]
    assert names == ["Hermes-Replay-Id", "ce-specversion", "ce-id"]


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_any_id_comes_back_from_its_header(message_id):
    request = replay_request("shop.orders", message_id, stored(Record(None, b"", (), 5)))
    raw = dict(request.headers)["Hermes-Replay-Id"].decode("ascii")
    assert unquote(raw, errors="strict") == message_id


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (to_record(Message("1", b"", 5, b"a\nb")), "its Partition-Key contains bytes"),
        (to_record(Message("1", b"", 5, b" a")), "its Partition-Key contains bytes"),
        (to_record(Message("1", b"", 5, None, (("a b", "c"),))), "is not an HTTP header name"),
        (Record(None, b'{"_w":true,"metadata":7}', (), 5), "cannot be decoded"),
    ],
)
def test_what_http_cannot_carry_is_said(record, why):
    with pytest.raises(CannotReplay, match=why):
        replay_request("shop.orders", "1", stored(record))


def test_a_tombstone_is_not_replayed_as_an_empty_message():
    tombstone = replace(stored(Record(b"k", b"", (), 5)), is_tombstone=True)
    with pytest.raises(CannotReplay, match="a tombstone"):
        replay_request("shop.orders", "1", tombstone)


class HandClock:
    """Time that passes while somebody sleeps."""

    def __init__(self):
        self.at_s = 100.0

    def monotonic_s(self):
        return self.at_s

    def now_ms(self):
        return int(self.at_s * 1_000)

    def sleep(self, seconds):
        self.at_s += seconds


class Frontend:
    """Answers in turn what it was told to, then 201; keeps what came and when."""

    def __init__(self, clock, *answers):
        self.clock = clock
        self.answers = list(answers)
        self.taken = []
        self.at_s = []

    def __call__(self, request):
        answer = self.answers.pop(0) if self.answers else httpx.Response(201)
        if isinstance(answer, Exception):
            raise answer
        self.at_s.append(self.clock.at_s)
        if answer.is_success:
            self.taken.append((request.url.path, request.headers["hermes-replay-id"]))
        return answer


def candidate(number, topic="shop.orders"):
    """Of a topic of its own from 100 on."""
    topic = topic if number < 100 else "shop.bills"

    def make():
        if number < 0:
            raise CannotReplay("its key holds bytes")
        return ReplayRequest(topic, f"id-{number}", (("Hermes-Replay-Id", b"id-%d" % number),), b"")

    return Candidate(topic, f"id-{number}", make)


@pytest.fixture
def run(tmp_path):
    """Replays candidates of these numbers to a frontend that answers so; frontend and tally."""

    def replayed(numbers, *answers, rate=100.0, only_for=""):
        clock = HandClock()
        frontend, tally = Frontend(clock, *answers), Tally()
        with (
            Journal(tmp_path / "replayed.ndjson") as journal,
            httpx.Client(transport=httpx.MockTransport(frontend)) as client,
        ):
            replayer = Replayer(
                client, "http://node.test/", journal, rate, only_for, clock, clock.sleep
            )
            replayer.run((candidate(number) for number in numbers), tally)
        return frontend, tally

    return replayed


def test_they_go_in_order_at_the_rate_and_no_faster(run):
    frontend, tally = run(range(5), rate=4)
    assert [message_id for _, message_id in frontend.taken] == [f"id-{n}" for n in range(5)]
    assert frontend.taken[0][0] == "/topics/shop.orders"
    assert all(later - earlier >= 0.25 for earlier, later in pairwise(frontend.at_s))
    assert tally == Tally(replayed=5)


def test_a_second_run_sends_what_is_missing_and_nothing_twice(run, tmp_path):
    run([1, 2])
    journal = tmp_path / "replayed.ndjson"
    # A run that was killed in the middle of a line.
    journal.write_bytes(journal.read_bytes() + b'{"topic":"shop.ord')
    frontend, tally = run([1, 2, 3])
    assert [message_id for _, message_id in frontend.taken] == ["id-3"]
    assert tally == Tally(replayed=1, before=2)
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [(line["messageId"], line["status"]) for line in lines] == [
        ("id-1", 201),
        ("id-2", 201),
        ("id-3", 201),
    ]
    assert run([1], only_for="billing")[1] == Tally(replayed=1)


def test_what_a_later_reconciliation_misses_is_sent_again(run, tmp_path):
    run([1])
    path = tmp_path / "replayed.ndjson"
    (line,) = [json.loads(each) for each in path.read_text().splitlines()]
    for since_ms, is_done in ((line["sentMs"], True), (line["sentMs"] + 1, False)):
        with Journal(path, since_ms) as journal:
            assert journal.is_done("shop.orders", "id-1", "") == is_done


def test_two_replays_of_one_report_do_not_run_at_once(tmp_path):
    with Journal(tmp_path / "replayed.ndjson"), pytest.raises(BlockingIOError):
        Journal(tmp_path / "replayed.ndjson")
    Journal(tmp_path / "replayed.ndjson").__exit__(None, None, None)


def test_a_busy_frontend_is_tried_again_as_late_as_it_asks(run):
    frontend, tally = run([1], httpx.Response(503, headers={"Retry-After": "7"}))
    assert frontend.at_s[1] - frontend.at_s[0] >= 7
    assert tally == Tally(replayed=1)


@pytest.mark.parametrize("status", [409, 500, 502, 504])
def test_what_is_under_way_or_broken_for_a_moment_is_tried_again(run, status):
    _, tally = run([1], httpx.Response(status, json={"message": "a moment"}))
    assert tally == Tally(replayed=1)


@pytest.mark.parametrize("status", [403, 404])
def test_a_topic_that_takes_none_keeps_no_other_from_its_messages(run, status):
    frontend, tally = run([1, 2, 100], httpx.Response(status, json={"message": "no topic"}))
    assert [message_id for _, message_id in frontend.taken] == ["id-100"]
    refused = {"shop.orders": f"{status}: no topic"}
    assert tally == Tally(replayed=1, failed=2, refused=refused)


def test_what_the_client_itself_refuses_to_send_stops_nothing(run):
    _, tally = run([1, 2], httpx.LocalProtocolError("illegal header"))
    assert tally == Tally(replayed=1, failed=1)


def test_what_is_refused_or_cannot_be_carried_is_told_and_the_rest_goes_on(run, tmp_path):
    refused = httpx.Response(400, json={"message": "too long"})
    _, tally = run([-1, 1, 2], refused)
    assert tally == Tally(replayed=1, failed=2)
    lines = [json.loads(each) for each in (tmp_path / "replayed.ndjson").read_text().splitlines()]
    assert [line.get("error", "") for line in lines] == ["its key holds bytes", "too long", ""]


def test_a_refusal_that_all_would_get_and_silence_end_the_run(run):
    with pytest.raises(CommandFailed, match=r"refuses messages of shop\.orders with 401: no"):
        run([1, 2], httpx.Response(401, json={"message": "no"}))
    with pytest.raises(CommandFailed, match=r"does not answer: .*run the same command again"):
        run([1], *[httpx.ConnectError("refused")] * ATTEMPTS_MAX)


def test_messages_wait_on_the_disk_in_their_order_and_few_in_memory(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(selection, "ROWS_AT_ONCE", 7)
    kept = [native(number) for number in range(100)]
    rows = [
        (
            "dc1",
            f"shop.t{at % 3}",
            at % 2,
            at,
            r.timestamp_ms,
            r.key,
            r.value,
            f"id-{at}",
            r.headers,
        )
        for at, r in enumerate(kept)
    ]
    records = spark.createDataFrame(rows, schema_of(COLUMNS)).repartition(5)
    wanted = records.where("offset >= 10").select("topic", "message_id")
    assert write_in_order(records_of(wanted, records), tmp_path / "kept") == 90
    found = list(candidates(rows_in_order(tmp_path / "kept"), "billing"))
    order = sorted(rows[10:], key=lambda row: (row[1], row[0], row[2], row[3]))
    assert [(each.topic, each.message_id) for each in found] == [(r[1], r[7]) for r in order]
    at = order[5][3]
    assert found[5].make() == replay_request(order[5][1], f"id-{at}", stored(kept[at]), "billing")


def test_a_task_has_each_message_of_its_time_once_and_for_its_target(spark):
    task = Task("t", "TOPIC", "shop.again", "shop.orders", T0, "2030-01-31T11:00Z")
    start_ms, hour_ms = moment_ms(T0, 0), 3_600_000
    rows = [
        (dc, topic, 0, at, timestamp_ms, b"k", b"1", f"id-{name}", [])
        for at, (dc, topic, timestamp_ms, name) in enumerate(
            [
                ("dc1", "shop.orders", start_ms - 1, "before"),
                ("dc1", "shop.orders", start_ms, "first"),
                ("dc2", "shop.orders", start_ms + 1, "first"),
                ("dc2", "shop.orders_.17", start_ms + hour_ms - 1, "of-a-later-life"),
                ("dc1", "shop.orders", start_ms + hour_ms, "after"),
                ("dc1", "shop.bills", start_ms, "other"),
            ]
        )
    ]
    records = spark.createDataFrame(rows, schema_of(COLUMNS))
    wanted = wanted_by(task, records)
    assert {tuple(row) for row in wanted.collect()} == {
        ("shop.orders", "id-first"),
        ("shop.orders", "id-of-a-later-life"),
    }
    found = records_for(task, wanted, records).collect()
    assert [(each.topic, each.dc, each.message_id) for each in found] == [
        ("shop.again", "dc1", "id-first"),
        ("shop.again", "dc2", "id-of-a-later-life"),
    ]


class TasksKept:
    def get(self, path):
        assert path == "/offline-retransmission/tasks"
        view = {"taskId": "v", "type": "VIEW", "sourceViewPath": "a", "targetTopic": "shop.again"}
        return json.dumps([view]).encode()


@pytest.mark.parametrize(("task_id", "said"), [("v", "your own job"), ("x", "no such task")])
def test_a_task_that_cannot_be_carried_out_is_named(task_id, said):
    with pytest.raises(UsageWrong, match=said):
        task_of(TasksKept(), task_id)


def test_a_subscription_that_the_report_does_not_know_is_told(tmp_path, capsys):
    Snapshot(0, {}).save(tmp_path / "snapshot.json")
    _look_for("shop.orders$biling", tmp_path)
    assert "has no subscription shop.orders$biling" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "give the archive that has them: --archive"),
        (["--task", "x"], "give only --archive with it"),
        (["--ids", "ids.txt"], "--ids needs the topic"),
        (["--subscription", "shop.orders$a", "--topic", "shop.bills"], "leave out --topic"),
    ],
)
def test_a_command_that_cannot_work_says_what_to_give(arguments, complaint, capsys):
    with pytest.raises(SystemExit) as end:
        app(["spark", "replay", "report", *arguments])
    assert end.value.code == 2
    assert complaint in " ".join(capsys.readouterr().err.split())
