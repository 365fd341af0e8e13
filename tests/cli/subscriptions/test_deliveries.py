"""`hermes subscription lag|retransmit|why`: what is asked of the server, and how it is shown."""

import json

import pytest

PATH = "/topics/shop.orders/subscriptions/billing"
NAMES = ("shop.orders", "billing")


def moved(**offsets):
    return {
        dc: [
            {"topic": {"value": "shop.orders"}, "partition": partition, "offset": offset}
            for partition, offset in enumerate(each)
        ]
        for dc, each in offsets.items()
    }


@pytest.mark.parametrize(
    ("options", "body"),
    [
        (["--to", "start"], {"to": "start"}),
        (["--to", "end", "--yes"], {"to": "end"}),
        (
            ["--to", "2026-01-31T13:00:00+01:00"],
            {"retransmissionDate": "2026-01-31T13:00:00+01:00"},
        ),
        (["--to", "1h"], {"retransmissionDate": "1h"}),
        (
            ["--offset", "dc1/0=4200", "--offset", "dc2/3=0", "--offset", "dc1/1=7"],
            {"offsets": {"dc1": {"0": 4200, "1": 7}, "dc2": {"3": 0}}},
        ),
    ],
)
def test_retransmit_asks_for_what_the_options_say(hermes, server, options, body):
    server.on(f"PUT {PATH}/retransmission", (200, moved(dc1=[4200, 7], dc2=[0])))
    result = hermes("subscription", "retransmit", *NAMES, *options)
    assert result.exit_code == 0
    assert server.calls[0].json() == body
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["DC", "Partition", "Offset"],
        ["dc1", "0", "4200"],
        ["dc1", "1", "7"],
        ["dc2", "0", "0"],
        ["subscription", "billing", "of", "shop.orders", "goes", "on", "there"],
    ]


def test_a_dry_run_says_so_to_the_server_and_to_the_user(hermes, server):
    server.on(f"PUT {PATH}/retransmission?dryRun=true", (200, moved(dc1=[1, 4], dc2=[])))
    server.on(f"GET {PATH}/lag", (200, LAG))
    result = hermes("subscription", "retransmit", *NAMES, "--to", "end", "--dry-run")
    assert [line.split() for line in result.stdout.splitlines()[:3]] == [
        ["DC", "Partition", "Offset", "Means"],
        ["dc1", "0", "1", "2", "again"],
        ["dc1", "1", "4", "?"],
    ]
    assert result.stdout.splitlines()[-2:] == [
        "dc2: its log does not answer; found out there when it does",
        "subscription billing of shop.orders would go on there",
    ]


def test_skipping_everything_wants_to_be_confirmed(hermes, server):
    result = hermes("subscription", "retransmit", *NAMES, "--to", "end")
    assert result.exit_code == 2
    assert "to skip all that subscription billing of shop.orders has not" in result.stderr
    assert server.made() == []


def test_an_offset_that_the_log_does_not_hold_is_told_of(hermes, server):
    server.on(f"PUT {PATH}/retransmission", (200, moved(dc1=[100, 3])))
    offsets = ("--offset", "dc1/0=4200", "--offset", "dc1/1=1")
    shown = hermes("subscription", "retransmit", *NAMES, *offsets).stdout
    assert "dc1/0: not at 4200, for what the log holds ends at 100\n" in shown
    assert "dc1/1: not at 1, for what the log holds begins at 3\n" in shown


@pytest.mark.parametrize("command", ["lag", "why"])
def test_dead_letters_are_told_of_with_the_newest_cause_and_the_way_to_them(
    hermes, server, command
):
    newest = {"discardedAt": "2030-01-31T12:00:00.000Z", "reason": "expired", "detail": "HTTP 503"}
    letters = {"deadLetters": {"open": 1, "isComplete": False, "newest": newest}}
    server.on(f"GET {PATH}/{command}", (200, {"datacenters": [], **letters}))
    assert hermes("subscription", command, *NAMES).stdout.splitlines()[-1] == (
        "at least 1 dead letter, the newest of 2030-01-31T12:00:00.000Z: expired: HTTP 503; "
        "see 'hermes dlq list shop.orders billing'"
    )


def test_retransmit_as_json_is_the_servers_own(hermes, server):
    server.on(f"PUT {PATH}/retransmission", (200, b'{"dc1":  []}'))
    result = hermes("subscription", "retransmit", *NAMES, "--to", "end", "--yes", "-o", "json")
    assert result.stdout == '{"dc1":  []}\n'


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "say where to go on"),
        (["--to", "end", "--yes", "--offset", "dc1/0=1"], "not both"),
        (["--to", "yesterday"], "--to 'yesterday': expected start, end, a time"),
        (["--offset", "0=1"], "expected DC/PARTITION=N"),
        (["--offset", "dc1/0=-1"], "expected DC/PARTITION=N"),
        (["--offset", "dc1/0=1", "--offset", "dc1/0=2"], "partition 0 of dc1 is given twice"),
    ],
)
def test_options_that_say_nothing_clear_are_usage_errors(hermes, server, options, said):
    result = hermes("subscription", "retransmit", *NAMES, *options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert server.calls == []


def test_a_retransmission_that_nobody_took_up_in_time_is_a_failure(hermes, server):
    body = {"message": "not within 30 s", "code": "UNABLE_TO_MOVE_OFFSETS_EXCEPTION"}
    server.on(f"PUT {PATH}/retransmission", (500, body))
    result = hermes("subscription", "retransmit", *NAMES, "--to", "end", "--yes")
    assert result.exit_code == 1
    assert "UNABLE_TO_MOVE_OFFSETS_EXCEPTION): not within 30 s" in result.stderr


LAG = {
    "lag": -1,
    "datacenters": [
        {
            "datacenter": "dc1",
            "isKnown": True,
            "lag": 7,
            "partitions": [
                {"partition": 0, "position": 3, "start": 0, "end": 10, "lag": 7},
                {"partition": 1, "position": None, "start": 0, "end": 4, "lag": -1},
            ],
        },
        {"datacenter": "dc2", "isKnown": False, "reason": "away\x1b", "lag": -1, "partitions": []},
    ],
}


def test_lag_has_a_row_for_each_partition_and_says_what_is_not_known(hermes, server):
    server.on(f"GET {PATH}/lag", (200, LAG))
    result = hermes("subscription", "lag", *NAMES)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["DC", "Partition", "Position", "End", "Lag"],
        ["dc1", "0", "3", "10", "7"],
        ["dc1", "1", "?", "4", "?"],
    ]
    assert lines[3:] == ["dc2: away\\x1b", "in all: ?"]
    shown = hermes("subscription", "lag", *NAMES, "-o", "json")
    assert json.loads(shown.stdout) == LAG
