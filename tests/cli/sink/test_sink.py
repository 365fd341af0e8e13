import hashlib
import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.cli.sink.server import RecentIds, Sink, SinkRules
from hermes_actors.config import FrontendConfig
from hermes_actors.publisher.answers import Answer
from hermes_actors.publisher.edges.http1.heads import Heads
from hermes_actors.runtime.clock import seeded_ids


def request(**headers):
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
    head = f"POST /p HTTP/1.1\r\nHost: x\r\n{''.join(lines)}\r\n"
    return Heads(FrontendConfig()).request(head.encode())


def push(message_id="m", retry=0):
    return request(hermes_message_id=message_id, hermes_retry_count=retry)


def sink(**rules):
    return Sink(SinkRules(**rules), now_ms=lambda: 1_000)


def take(endpoint, message_id="m", body=b"{}", retry=0):
    return endpoint.take(push(message_id, retry), body)


def test_a_sink_answers_with_its_status():
    assert take(sink()).status == 200
    assert take(sink(status=503)).status == 503


@pytest.mark.slow
@given(st.floats(0, 100), st.text(max_size=40))
def test_whether_a_message_is_picked_depends_on_its_id_alone(percent, message_id):
    rules = SinkRules(fail_first_percent=percent)
    assert rules.picks(message_id) == SinkRules(fail_first_percent=percent).picks(message_id)


@given(st.text(max_size=40))
def test_a_share_of_0_picks_none_and_of_100_all(message_id):
    assert not SinkRules(fail_first_percent=0).picks(message_id)
    assert SinkRules(fail_first_percent=100).picks(message_id)


def test_a_share_of_10_picks_about_a_tenth():
    rules = SinkRules(fail_first_percent=10)
    ids = seeded_ids(random.Random(7))
    picked = sum(rules.picks(ids.message_id()) for _ in range(10_000))
    assert 900 < picked < 1_100


def test_a_picked_message_fails_at_its_first_attempt_only():
    endpoint = sink(fail_first_percent=100)
    assert [take(endpoint).status for _ in range(3)] == [500, 200, 200]
    assert endpoint.counts.refused == 1
    assert endpoint.counts.accepted == 2


def test_an_accepted_message_that_comes_again_is_a_duplicate():
    endpoint = sink()
    for message_id, retry in (("a", 0), ("b", 0), ("a", 1)):
        take(endpoint, message_id, retry=retry)
    counts = endpoint.counts
    assert (counts.received, counts.accepted, counts.retries, counts.duplicates) == (3, 3, 1, 1)


def test_without_an_id_equal_bodies_are_the_same_message():
    endpoint = sink()
    for body in (b"1", b"2", b"1"):
        endpoint.take(request(), body)
    assert endpoint.counts.duplicates == 1


def test_a_batch_is_known_by_its_batch_id():
    delivery = sink().take(request(hermes_batch_id="b-1"), b"[]")
    assert delivery.message_id == "b-1"


def test_a_retry_count_that_is_no_number_is_zero():
    assert take(sink(), retry="many").retry_count == 0


def test_ids_are_forgotten_oldest_first():
    recent = RecentIds(ids_max=2)
    assert [recent.is_new(each) for each in "abca"] == [True, True, True, True]
    assert not recent.is_new("c")


@given(st.binary(max_size=50))
def test_a_line_holds_the_body_and_its_hash(body):
    line = take(sink(), body=body).line()
    assert line.count(b"\n") == 1
    fields = json.loads(line)
    assert fields["bodySha256"] == hashlib.sha256(body).hexdigest()
    assert ("body" in fields) != ("bodyBase64" in fields)
    assert (fields["receivedMs"], fields["messageId"], fields["path"]) == (1_000, "m", "/p")


def test_the_answer_has_the_status_and_the_delay_of_the_rules():
    replies = []
    endpoint = sink(status=503, delay_ms=20)
    endpoint.respond(push(), b"{}", lambda answer, delay_s: replies.append((answer, delay_s)))
    assert replies == [(Answer(503), 0.02)]


def test_each_push_is_a_line_of_the_journal_before_it_is_answered(tmp_path):
    path, replies = tmp_path / "j.ndjson", []
    with path.open("wb", buffering=0) as journal:
        endpoint = Sink(SinkRules(), lambda: 1_000, journal)
        for body in (b"1", b"2"):
            endpoint.respond(push(), body, lambda answer, _: replies.append(answer.status))
            assert json.loads(path.read_text().splitlines()[-1])["body"] == body.decode()
    assert replies == [200, 200]


def test_what_cannot_be_written_down_is_not_accepted():
    replies = []
    with open("/dev/full", "wb", buffering=0) as journal:  # noqa: PTH123 -- no path of a file
        endpoint = Sink(SinkRules(), lambda: 1_000, journal)
        endpoint.respond(push(), b"1", lambda answer, _: replies.append(answer.status))
    assert replies == [507]


def test_a_file_that_cannot_be_written_is_one_line(hermes, tmp_path):
    result = hermes("sink", "--port", "0", "--write", str(tmp_path))
    assert result.exit_code == 1
    assert f"--write {tmp_path}: cannot be written: Is a directory" in result.stderr


@pytest.mark.parametrize("share", ["ten", "-1%", "101", "nan"])
def test_a_share_that_is_none_is_a_usage_error(hermes, share):
    result = hermes("sink", "--fail-first", share)
    assert result.exit_code == 2
    assert "0% to 100%" in result.stderr


def test_a_port_that_is_taken_is_one_line(hermes, server):
    port = server.url.rpartition(":")[2]
    result = hermes("sink", "--port", port)
    assert result.exit_code == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in result.stderr
    assert "--port" in result.stderr


@pytest.mark.live
def test_a_sink_process_writes_all_and_sums_up_at_sigterm(tmp_path: Path):
    taken = tmp_path / "taken.ndjson"
    command = [
        sys.executable, "-m", "hermes_actors", "sink", "--port", "0", "--json", "--quiet",
        "--write", str(taken), "--fail-first", "100%",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = json.loads(process.stdout.readline())["url"]
            with httpx.Client(trust_env=False) as client:
                headers = {"Hermes-Message-Id": "m-1"}
                first = client.post(url, content=b"ab", headers=headers)
                second = client.post(url, content=iter([b"a", b"b"]), headers=headers)
            process.send_signal(signal.SIGTERM)
            rest = process.stdout.read()
        finally:
            process.terminate()
    assert process.returncode == 0
    assert (first.status_code, second.status_code) == (500, 200)
    summary = json.loads(rest)["summary"]
    assert (summary["received"], summary["accepted"], summary["refused"]) == (2, 1, 1)
    lines = [json.loads(line) for line in taken.read_text().splitlines()]
    assert [(each["status"], each["body"]) for each in lines] == [(500, "ab"), (200, "ab")]
