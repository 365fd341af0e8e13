"""The core decides by what has happened, the time and a random number: any world can be tried."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_client.errors import CallFailed, NotAccepted
from hermes_client.exchange import Reply, Retries, Servers
from hermes_client.publishing import Published, Publishing

URLS = ["http://a.test", "http://b.test", "http://c.test"]
UP = (201, 202, 400, 403, 404, 408, 409, 422, 429, 500, 502, 503)
FINAL = (400, 403, 404, 422)
RETRIES = Retries(attempts_max=6, total_s=20.0)


def single(what):
    """The reply to one message, and whether it may be stored; None if it is."""
    match what:
        case "dead":
            return Reply(reason="refused", may_have_arrived=False), False
        case "lost":
            return Reply(reason="timeout"), True
        case "stopping":
            return Reply(503), False
        case 201 | 202:
            return Reply(what, {"hermes-message-id": "m1"}), None
    code = "OTHER" if what in (409, 503) else "X"
    headers = {"retry-after": "3"} if what in (409, 429) else {}
    body = json.dumps({"code": code, "message": "because"}).encode()
    return Reply(what, headers, body), what in (409, 500, 502)


class Run:
    """Drives the steps in virtual time. `answer(send)` is the reply; it takes `takes_s`."""

    def __init__(self, steps, answer, takes_s=0.5):
        self.now_s, self.sent, self.pauses = 1_000.0, [], []
        step = next(steps)
        try:
            while True:
                reply = Reply()
                if isinstance(step, float):
                    self.pauses.append(step)
                    self.now_s += step
                else:
                    assert step[2] <= RETRIES.attempt_s
                    self.sent.append((self.now_s, step))
                    self.now_s += takes_s
                    reply = answer(step)
                step = steps.send((self.now_s, reply))
        except StopIteration as end:
            self.result, self.error = end.value, None
        except CallFailed as error:
            self.result, self.error = None, error


def publishing(urls=URLS, seed=0, retries=RETRIES):
    return Publishing(Servers(urls), retries, random.Random(seed))


@given(st.data(), st.integers(0, 9))
def test_a_message_is_sent_until_it_is_stored_or_refused_within_all_bounds(data, seed):
    replies, maybe, asked = [], [], []
    kinds = st.sampled_from([*UP, "dead", "lost", "stopping"])

    def answer(_send):
        replies.append(data.draw(kinds))
        reply, may_be_stored = single(replies[-1])
        maybe.append(may_be_stored)
        asked.append(float(reply.headers.get("retry-after", 0)))
        return reply

    run = Run(publishing(seed=seed).publish("a.b", {"n": 1}, "k", None, None), answer)
    *before, last = replies
    assert not {201, 202, *FINAL} & set(before), "what is final ends it"
    assert len(replies) <= RETRIES.attempts_max
    assert run.now_s <= 1_000 + RETRIES.total_s + RETRIES.attempt_s
    # One key for all attempts, so one server stores the message once.
    assert len({step[1][2]["idempotency-key"] for _, step in run.sent}) == 1
    for (at_s, step), (next_s, following), asked_s in zip(
        run.sent, run.sent[1:], asked, strict=False
    ):
        assert next_s >= at_s + asked_s
        if step[0] == following[0]:
            assert next_s > at_s + 0.5, "a server is never sent the same message again at once"
    if last in (201, 202):
        assert run.result == Published("m1", is_spooled=last == 202)
    else:
        assert isinstance(run.error, NotAccepted) is (last not in FINAL)
        assert run.error.may_be_stored is any(maybe)
        assert run.error.attempts == len(replies)


@given(st.data(), st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_each_message_of_a_batch_has_its_own_outcome_and_none_is_sent_after_its_last_word(
    data, numbers
):
    final, words = {}, st.sampled_from([201, 202, 400, 429, 500, 503])

    def answer(send):
        sent = [json.loads(line) for line in send[1][1].splitlines()]
        assert not {each["id"] for each in sent} & final.keys()
        lines = []
        for each in sent[: data.draw(st.integers(0, len(sent)))]:
            status = data.draw(words)
            lines.append({"status": status, "id": each["id"], "code": "X", "message": "because"})
            if status in (201, 202, 400):
                final[each["id"]] = status, each["message"]
        body = "".join(json.dumps(line) + "\n" for line in lines)
        ends = data.draw(st.sampled_from(["", '{"status":503,"code":"OTHER"}\n', '{"status":4']))
        return Reply(200, {}, (body + ends).encode())

    run = Run(publishing().publish_many("a.b", numbers), answer)
    assert len(run.result) == len(numbers)
    said = sorted(
        (201 + each.is_spooled if isinstance(each, Published) else each.status, number)
        for each, number in zip(run.result, numbers, strict=True)
        if not isinstance(each, NotAccepted)
    )
    assert said == sorted(final.values())


def test_a_batch_that_is_cut_off_is_sent_again_without_what_was_answered():
    bodies = []

    def answer(send):
        lines = send[1][1].splitlines()
        bodies.append([json.loads(line)["message"] for line in lines])
        ids = [json.loads(line)["id"] for line in lines]
        if len(bodies) == 1:
            return Reply(200, {}, b'{"status":201,"id":"%b"}\n{"sta' % ids[0].encode())
        return Reply(200, {}, b"".join(b'{"status":201,"id":"x"}\n' for _ in ids))

    run = Run(publishing().publish_many("a.b", [1, b"[2,\n1.10]", 3]), answer)
    assert bodies == [[1, [2, 1.1], 3], [[2, 1.1], 3]]
    assert all(isinstance(each, Published) for each in run.result)


def test_batches_are_cut_by_number_and_size_and_nothing_is_sent_if_a_message_is_no_json():
    def answer(send):
        count = send[1][1].count(b"\n")
        return Reply(200, {}, b'{"status":201,"id":"x"}\n' * count)

    messages = [*range(1_500), "x" * 900_000, "y" * 900_000]
    run = Run(publishing().publish_many("a.b", messages), answer)
    assert [step[1][1].count(b"\n") for _, step in run.sent] == [1_000, 501, 1]
    with pytest.raises(ValueError, match="Expecting"):
        Run(publishing().publish_many("a.b", [*range(1_500), b"no json"]), None)


def test_a_dead_server_is_avoided_and_then_tried_by_one_call_only():
    servers = Servers(URLS)
    dead, alive = Reply(), Reply(201)
    assert servers.choose(0.0, ()) == URLS[0]
    servers.learn(URLS[0], dead, 0.0)
    assert servers.choose(0.9, ()) == URLS[1]
    assert [servers.choose(1.0, ()) for _ in range(3)] == [URLS[0], URLS[1], URLS[1]]
    servers.learn(URLS[0], dead, 1.0)
    assert servers.choose(2.9, ()) == URLS[1], "twice as long"
    assert servers.choose(3.0, ()) == URLS[0]
    servers.learn(URLS[0], alive, 3.0)
    assert [servers.choose(3.0, ()) for _ in range(2)] == [URLS[0], URLS[0]]
    for url in URLS:
        servers.learn(url, dead, 4.0)
    assert servers.choose(4.1, ()) == URLS[0], "if all are dead, the first of them is tried"


def test_with_another_server_at_hand_nobody_waits():
    replies = iter([Reply(), Reply(503, {}, b'{"code":"OTHER","message":"full"}'), Reply(201)])
    run = Run(publishing().publish("a.b", 1, None, None, None), lambda _: next(replies))
    assert [step[0] for _, step in run.sent] == URLS
    assert run.pauses == [0.0]


@pytest.mark.parametrize("status", [409, 429])
def test_above_a_quota_or_behind_its_own_key_a_call_waits_for_the_same_server(status):
    replies = iter([Reply(status, {"retry-after": "7"}), Reply(201)])
    run = Run(publishing().publish("a.b", 1, None, None, None), lambda _: next(replies))
    assert [step[0] for _, step in run.sent] == URLS[:1] * 2
    assert run.pauses == [0.0, 7.0]


def test_a_wait_that_would_outlast_the_time_is_not_begun():
    reply = Reply(429, {"retry-after": "60"})
    run = Run(publishing().publish("a.b", 1, None, None, None), lambda _: reply)
    assert (run.error.attempts, run.error.retry_after_s, run.pauses) == (1, 60.0, [0.0])


@pytest.mark.parametrize(
    "urls", [[], "127.0.0.1:8080", "ftp://a.test", "http://", "http://a.test/?x=1"]
)
def test_what_is_no_base_url_is_refused_with_an_example(urls):
    with pytest.raises(ValueError, match=r"http://127\.0\.0\.1:8080"):
        Servers(urls)


def test_credentials_in_a_url_are_refused_and_not_shown():
    with pytest.raises(ValueError, match="auth=") as refused:
        Servers("http://sam:s3cret@a.test")
    assert "s3cret" not in str(refused.value)
