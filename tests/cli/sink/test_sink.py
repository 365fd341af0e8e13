import hashlib
import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.cli.connection.http_server import Request
from hermes_actors.cli.sink.server import Journal, RecentIds, Sink, SinkRules
from hermes_actors.runtime.clock import seeded_ids


def push(message_id="m", body=b"{}", retry=0):
    headers = {b"hermes-message-id": message_id.encode(), b"hermes-retry-count": b"%d" % retry}
    return Request("POST", "/p", headers if message_id else {}, body)


def sink(**rules):
    return Sink(SinkRules(**rules), now_ms=lambda: 1_000)


def test_a_sink_answers_with_its_status():
    assert sink().take(push()).status == 200
    assert sink(status=503).take(push()).status == 503


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
    assert [endpoint.take(push()).status for _ in range(3)] == [500, 200, 200]
    assert endpoint.counts.refused == 1
    assert endpoint.counts.accepted == 2


def test_an_accepted_message_that_comes_again_is_a_duplicate():
    endpoint = sink()
    for message_id, retry in (("a", 0), ("b", 0), ("a", 1)):
        endpoint.take(push(message_id, retry=retry))
    counts = endpoint.counts
    assert (counts.received, counts.accepted, counts.retries, counts.duplicates) == (3, 3, 1, 1)


def test_without_an_id_equal_bodies_are_the_same_message():
    endpoint = sink()
    for body in (b"1", b"2", b"1"):
        endpoint.take(push("", body))
    assert endpoint.counts.duplicates == 1


def test_a_batch_is_known_by_its_batch_id():
    delivery = sink().take(Request("POST", "/", {b"hermes-batch-id": b"b-1"}, b"[]"))
    assert delivery.message_id == "b-1"


def test_a_retry_count_that_is_no_number_is_zero():
    request = Request("POST", "/", {b"hermes-retry-count": b"many"}, b"")
    assert sink().take(request).retry_count == 0


def test_ids_are_forgotten_oldest_first():
    recent = RecentIds(ids_max=2)
    assert [recent.is_new(each) for each in "abca"] == [True, True, True, True]
    assert not recent.is_new("c")


@given(st.binary(max_size=50))
def test_a_line_holds_the_body_and_its_hash(body):
    line = sink().take(push(body=body)).line()
    assert line.count(b"\n") == 1
    fields = json.loads(line)
    assert fields["bodySha256"] == hashlib.sha256(body).hexdigest()
    assert ("body" in fields) != ("bodyBase64" in fields)
    assert (fields["receivedMs"], fields["messageId"], fields["path"]) == (1_000, "m", "/p")


async def test_a_delay_comes_before_the_answer(autojump_clock):
    began = trio.current_time()
    assert (await sink(delay_ms=20).respond(push())).startswith(b"HTTP/1.1 200")
    assert trio.current_time() - began == pytest.approx(0.02)


async def test_a_journal_holds_all_lines_when_it_is_cancelled(tmp_path):
    path = tmp_path / "j.ndjson"
    journal = Journal(path)
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.run)
        for number in range(100):
            await journal.add(b"%d\n" % number)
        nursery.cancel_scope.cancel()
    assert path.read_bytes() == b"".join(b"%d\n" % number for number in range(100))


async def test_a_full_journal_makes_the_sink_wait(tmp_path):
    path = tmp_path / "j.ndjson"
    journal = Journal(path, lines_max=2, interval_s=0.01)
    await journal.add(b"1\n")
    await journal.add(b"2\n")
    with trio.move_on_after(0.05) as scope:
        await journal.add(b"3\n")
    assert scope.cancelled_caught
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.run)
        for each in (b"3\n", b"4\n", b"5\n", b"6\n"):
            await journal.add(each)
        nursery.cancel_scope.cancel()
    assert path.read_bytes() == b"1\n2\n3\n4\n5\n6\n"


@pytest.mark.parametrize("share", ["ten", "-1%", "101", "nan"])
def test_a_share_that_is_none_is_a_usage_error(hermes, share):
    result = hermes("sink", "--fail-first", share)
    assert result.exit_code == 2
    assert "0% to 100%" in result.stderr


def test_a_port_that_is_taken_is_one_line(hermes, server):
    port = server.url.rpartition(":")[2]
    result = hermes("sink", "--port", port)
    assert result.exit_code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in result.stderr
    assert "--port" in result.stderr


@pytest.mark.live
def test_a_sink_process_writes_all_and_sums_up_at_sigterm(tmp_path: Path):
    taken = tmp_path / "taken.ndjson"
    command = [
        sys.executable, "-m", "hermes_actors.cli", "sink", "--port", "0", "--json", "--quiet",
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
