"""`hermes pull` against a management API that is a fake."""

import base64
import json
import sys

import pytest

PATH = "POST /topics/shop.orders/subscriptions/worker"
ARGUMENTS = ("pull", "shop.orders", "worker")
TAKEN = {"accepted": 1, "refused": []}


def received(number, **message):
    body = {"messageId": f"m{number}", "publishTime": "2026-11-28T10:00:00.000Z"}
    return {
        "ackId": f"a{number}",
        "deliveryAttempt": 1,
        "ackDeadline": "2026-11-28T10:00:30.000Z",
        "message": body | (message or {"json": {"n": number}}),
    }


@pytest.fixture(autouse=True)
def settling(server):
    for verb in ("ack", "nack", "extend"):
        server.on(f"{PATH}/{verb}", (200, TAKEN))


def pulled(*messages):
    return 200, {"receivedMessages": messages}


def asked(server, verb):
    return [call.json() for call in server.calls if call.path.endswith(f"/{verb}")]


def test_each_message_is_a_line_as_published_and_is_acknowledged_after_it(server, hermes):
    big = b'{"x": 12345678901234567890123,\n "y": 1.0}'
    answer = json.dumps({"receivedMessages": [received(1), received(2, json=0)]}).encode()
    server.on(f"{PATH}/pull", (200, answer.replace(b'"json": 0', b'"json": ' + big)), pulled())
    first, second = hermes(*ARGUMENTS, "--once").stdout.splitlines()
    assert json.loads(first)["message"]["json"] == {"n": 1}
    assert '"json":{"x":12345678901234567890123,"y":1.0}' in second
    assert asked(server, "ack") == [{"ackIds": ["a1", "a2"]}]


def test_the_exit_code_of_a_command_decides_and_its_stdin_is_the_body(server, hermes, tmp_path):
    bodies = tmp_path / "bodies"
    script = tmp_path / "handle.py"
    script.write_text(
        "import os, sys\n"
        "body = sys.stdin.read()\n"
        f"open({str(bodies)!r}, 'a').write(os.environ['HERMES_MESSAGE_ID'] + body + '\\n')\n"
        "sys.exit('bad' in body)\n"
    )
    data = base64.b64encode(b"not json").decode()
    messages = received(1, json={"n": 1}), received(2, json="bad"), received(3, data=data)
    server.on(f"{PATH}/pull", *map(pulled, messages), pulled())
    result = hermes(*ARGUMENTS, "--once", "--exec", f"{sys.executable} {script}")
    assert bodies.read_text().splitlines() == ['m1{"n": 1}', 'm2"bad"', "m3not json"]
    assert asked(server, "ack") == [{"ackIds": ["a1"]}, {"ackIds": ["a3"]}]
    assert asked(server, "nack") == [{"ackIds": ["a2"], "delayMs": 60_000}]
    assert [each["ackIds"] for each in asked(server, "extend")] == [["a1"], ["a2"], ["a3"]]
    assert result.exit_code == 1
    assert "messages given back because the command failed: 1" in result.stderr


def test_a_worker_goes_on_after_a_failure_of_the_server(server, hermes, monkeypatch):
    monkeypatch.setattr("hermes_actors.cli.pull._PAUSE_S", 0.0)
    server.on(
        f"{PATH}/pull",
        pulled(),
        (503, {"message": "no owner", "code": "OTHER"}),
        pulled(received(1)),
    )
    refused = {"ackId": "a1", "code": "STALE", "message": "the partition has a new owner"}
    server.on(f"{PATH}/ack", (200, {"accepted": 0, "refused": [refused]}))
    result = hermes(*ARGUMENTS, "--max", "1")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["message"]["messageId"] == "m1"
    assert "no owner; trying again" in result.stderr
    assert "1 of 1 were refused; the first: the partition has a new owner" in result.stderr


def test_the_first_failure_ends_it(server, hermes):
    server.on(f"{PATH}/pull", (400, {"message": "is pushed", "code": "VALIDATION_ERROR"}))
    result = hermes(*ARGUMENTS)
    assert (result.exit_code, "is pushed" in result.stderr) == (1, True)
