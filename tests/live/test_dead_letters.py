"""Dead letters as an operator meets them: `hermes dev`, an endpoint that refuses, `hermes dlq`."""

import json
import subprocess
import sys

import pytest

from tests.live.waiting import wait_until

pytestmark = pytest.mark.live

WHICH = ("shop.orders", "sink")


@pytest.fixture
def hermes():
    def run(*arguments, management):
        done = subprocess.run(
            [sys.executable, "-m", "hermes_actors", *arguments, "--management", management],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_refused_messages_survive_a_kill_as_letters_and_are_delivered_when_asked_for(
    start, shop, http, hermes, data, ports, tmp_path
):
    port = ports(1)[0]
    refusing = start("sink", "--port", str(port), "--status", "422", "--quiet", "--json")
    first = ports(4)
    arguments = ["dev", "--data", str(data), "--json"]
    arguments += ["--publish-port", str(first[0]), "--management-port", str(first[2])]
    node = start(*arguments)
    one, other = node.ready["dcs"]
    shop(one["management"], f"http://127.0.0.1:{port}/orders")
    for n in range(3):
        assert http("POST", f"{one['publish']}/topics/shop.orders", {"n": n})[0] == 201
    wait_until(
        lambda: http("GET", f"{other['management']}/topics/shop.orders")[0] == 200, "it is known"
    )
    wait_until(
        lambda: http("POST", f"{other['publish']}/topics/shop.orders", {"n": 3})[0] == 201,
        "it can be published to",
    )

    def listed():
        text = hermes("dlq", "list", *WHICH, "--json", management=other["management"])
        return json.loads(text)["deadLetters"]

    letters = wait_until(lambda: len(found := listed()) == 4 and found, "four are listed")
    assert {letter["cluster"] for letter in letters} == {"dc1", "dc2"}
    assert {(letter["reason"], letter["status"]) for letter in letters} == {("client-error", 422)}

    node.kill()
    refusing.end()
    taken = tmp_path / "taken.ndjson"
    start("sink", "--port", str(port), "--write", str(taken), "--quiet", "--json")
    node = start(*arguments)
    management = node.ready["dcs"][0]["management"]
    shown = hermes("dlq", "show", *WHICH, letters[0]["id"], "--json", management=management)
    assert json.loads(json.loads(shown)["message"])["n"] in range(4)
    last = http("GET", f"{management}/topics/shop.orders/subscriptions/sink/undelivered/last")
    assert (last[0], last[1]["status"]) == (200, "DISCARDED")
    hermes("dlq", "expire", *WHICH, letters[0]["id"], management=management)

    said = hermes("dlq", "redrive", *WHICH, "--all", management=management)
    assert "re-driving 3 dead letters" in said

    def progress():
        text = hermes("dlq", "progress", *WHICH, "--json", management=management)
        found = json.loads(text)
        return found["isDone"] and found

    done = wait_until(progress, "all is re-driven")
    assert (done["redriven"], done["failed"]) == (3, 0)
    assert hermes("dlq", "list", *WHICH, management=management).strip() == "no open dead letters"
    delivered = {json.loads(line)["messageId"] for line in taken.read_text().splitlines()}
    # The expired one too, if its settling was not committed before the kill.
    assert delivered >= {letter["messageId"] for letter in letters[1:]}
