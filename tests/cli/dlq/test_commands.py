"""`hermes dlq`: what it asks the management API for, and how it shows the answers."""

import json

import pytest

PATH = "/topics/shop.orders/subscriptions/billing/dead-letters"
LETTER = {
    "id": "dc1:0:3:1042",
    "messageId": "m-1",
    "discardedAt": "2030-01-31T12:00:00.000Z",
    "reason": "client-error",
    "detail": "HTTP 400\x1b",
    "status": 400,
    "attempts": 3,
}
WHICH = ("shop.orders", "billing")


def test_list_shows_a_row_for_each_letter_and_where_to_go_on(hermes, server):
    page = {
        "deadLetters": [LETTER, {**LETTER, "messageId": None, "status": 0, "detail": ""}],
        "next": "abc",
        "unreachable": [{"datacenter": "dc2", "reason": "it is away"}],
    }
    server.on(f"GET {PATH}?limit=50", (200, page))
    result = hermes("dlq", "list", *WHICH)
    assert result.exit_code == 0
    assert "dc1:0:3:1042" in result.stdout
    assert "client-error: HTTP 400\\x1b" in result.stdout
    assert "dc2 is left out: it is away" in result.stdout
    assert "--before abc" in result.stdout


def test_list_hands_its_filters_over_and_json_is_the_servers_own(hermes, server):
    until = "2030-01-31T12%3A00%3A00%2B01%3A00"
    query = f"reason=expired%2Cclient-error&status=503&since=1h&until={until}&limit=5"
    server.on(f"GET {PATH}?{query}", (200, b'{"deadLetters": []}'))
    result = hermes(
        "dlq",
        "list",
        *WHICH,
        *("--reason", "expired,client-error", "--status", "503", "--since", "1h"),
        *("--until", "2030-01-31T12:00:00+01:00"),
        *("--limit", "5", "--json"),
    )
    assert result.stdout == '{"deadLetters": []}\n'


def test_show_is_one_letter(hermes, server):
    server.on(f"GET {PATH}/dc1%3A0%3A3%3A1042", (200, {**LETTER, "message": '{"n":1}'}))
    result = hermes("dlq", "show", *WHICH, "dc1:0:3:1042")
    assert '{"n":1}' in result.stdout


@pytest.mark.parametrize("command", ["redrive", "expire"])
@pytest.mark.parametrize("options", [(), ("--all", "--reason", "expired")])
def test_which_letters_are_meant_must_be_said(hermes, server, command, options):
    result = hermes("dlq", command, *WHICH, *options)
    assert result.exit_code == 2
    assert "say which dead letters" in result.stderr
    assert server.made() == []


def test_redrive_asks_and_says_where_its_progress_is(hermes, server):
    server.on(
        f"POST {PATH}/redrive",
        (202, {"number": 1, "matching": 7, "ratePerSecond": 20, "isComplete": True}),
    )
    result = hermes("dlq", "redrive", *WHICH, "--reason", "expired", "--rate", "20")
    assert "re-drives 7 dead letters of billing, 20/s" in result.stdout
    assert "hermes dlq progress shop.orders billing" in result.stdout
    assert server.calls[0].json() == {"reason": "expired", "dryRun": False, "ratePerSecond": 20}


def test_redrive_counts_before_it_is_asked_for(hermes, server):
    server.on(f"POST {PATH}/redrive", (200, {"matching": 7, "isComplete": False}))
    result = hermes("dlq", "redrive", *WHICH, "--all", "--dry-run")
    assert result.stdout == "would re-drive at least 7 dead letters of billing\n"
    assert server.calls[0].json() == {"all": True, "dryRun": True}


def test_progress_has_a_row_for_each_datacentre(hermes, server):
    done = {"datacenter": "dc1", "state": "DONE", "total": 5, "redriven": 4, "failed": 1}
    lost = {"datacenter": "dc2", "state": "UNKNOWN", "reason": "it is away"}
    server.on(f"GET {PATH}/redrive", (200, {"datacenters": [done, lost]}))
    lines = hermes("dlq", "progress", *WHICH).stdout.splitlines()
    assert lines[1].split() == ["dc1", "DONE", "5", "4", "1"]
    assert lines[2].split() == ["dc2", "UNKNOWN", "it", "is", "away"]


def test_one_dead_letter_is_not_one_letters(hermes, server):
    server.on(f"POST {PATH}/redrive", (200, {"matching": 1, "isComplete": True}))
    result = hermes("dlq", "redrive", *WHICH, "--all", "--dry-run")
    assert result.stdout == "would re-drive 1 dead letter of billing\n"


def test_progress_says_where_what_failed_again_is_listed(hermes, server):
    found = {
        "requestedAt": "2030-01-31T12:00:00.000Z",
        "failed": 1,
        "datacenters": [
            {"datacenter": "dc1", "state": "CANCELLED", "failed": 1, "reason": "cancelled by ann"}
        ],
    }
    server.on(f"GET {PATH}/redrive", (200, found))
    shown = " ".join(hermes("dlq", "progress", *WHICH).stdout.split())
    assert "CANCELLED 1 cancelled by ann 1 message failed again" in shown
    assert "hermes dlq list shop.orders billing --since 2030-01-31T12:00:00.000Z" in shown


def test_a_time_that_is_none_is_refused_before_anything_is_sent(hermes, server):
    result = hermes("dlq", "list", *WHICH, "--since", "yesterday")
    assert result.exit_code == 2
    assert "--since 'yesterday': expected a time such as" in result.stderr
    assert server.made() == []


def test_cancel_deletes_the_redrive(hermes, server):
    server.on(f"GET {PATH}/redrive", (200, {"isDone": False}))
    server.on(f"DELETE {PATH}/redrive", (200, b""))
    assert hermes("dlq", "cancel", *WHICH).exit_code == 0
    assert server.made() == [f"GET {PATH}/redrive", f"DELETE {PATH}/redrive"]


def test_a_redrive_that_is_done_is_not_said_to_be_cancelled(hermes, server):
    server.on(f"GET {PATH}/redrive", (200, {"isDone": True, "redriven": 0, "failed": 20}))
    result = hermes("dlq", "cancel", *WHICH)
    assert result.exit_code == 0
    assert result.stdout == (
        "the last re-drive of billing of shop.orders was done already "
        "(0 re-driven, 20 failed): nothing to cancel\n"
    )
    assert server.made() == [f"GET {PATH}/redrive"]


def test_expire_by_id_needs_no_question_and_by_time_does(hermes, server):
    server.on(f"POST {PATH}/expire", (200, {"expired": 2, "isComplete": True}))
    result = hermes("dlq", "expire", *WHICH, "dc1:0:3:1", "dc1:0:3:2")
    assert result.stdout == "expired 2 dead letters of billing\n"
    assert server.calls[0].json() == {"ids": ["dc1:0:3:1", "dc1:0:3:2"], "dryRun": False}
    result = hermes("dlq", "expire", *WHICH, "--until", "2030-01-31")
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert len(server.calls) == 1
    result = hermes("dlq", "expire", *WHICH, "--until", "2030-01-31", "--yes", "--json")
    assert json.loads(result.stdout)["expired"] == 2
