"""`--watch` shows the same again and again; `status --check` is for scripts."""

import io
import json
import sys

import pytest

from hermes_actors.cli.command_line.failures import CommandFailed
from hermes_actors.cli.output.render import say
from hermes_actors.cli.output.watching import INTERVAL_S, watched

UP = {"datacenter": "dc1", "isKnown": True}
AWAY = {"datacenter": "dc2", "isKnown": False, "reason": "its log is away"}
READY = {"datacenter": "dc1", "node": "n1", "state": "READY"}
GONE = {"datacenter": "dc1", "node": "n2", "state": "GONE", "reasons": ["not heard from for 12 s"]}
ILL = {
    "topicName": "shop.orders",
    "name": "billing",
    "problems": [{"code": "LAGGING", "description": "4 dead letters are open"}],
}


class Interrupting:
    """A pause that is interrupted when it comes for the third time."""

    def __init__(self):
        self.pauses = []

    def __call__(self, pause_s):
        self.pauses.append(pause_s)
        if len(self.pauses) == 3:
            raise KeyboardInterrupt


def looks():
    """What is shown: a number that grows, and in its second place a failure."""
    number = 0

    def show():
        nonlocal number
        number += 1
        if number == 2:
            raise CommandFailed("it is away")
        say(f"look {number}")

    return show


def test_in_a_pipe_each_look_follows_the_one_before_with_its_time(capsys):
    sleep = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        watched(looks(), is_watched=True, sleep=sleep)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0::3] == ["look 1", "hermes: it is away", "look 3"]
    assert all(line.endswith("Z") for line in lines[2::3])
    assert sleep.pauses == [INTERVAL_S] * 3


def test_on_a_terminal_each_look_stands_in_the_place_of_the_one_before(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    with pytest.raises(KeyboardInterrupt):
        watched(looks(), is_watched=True, sleep=Interrupting())
    shown = terminal.getvalue()
    assert shown.count("\x1b[H\x1b[2J") == 2
    assert shown.index("look 1") < shown.index("it is away") < shown.index("look 3")


def test_a_first_look_that_fails_ends_the_command():
    with pytest.raises(CommandFailed):
        watched(lambda: (_ for _ in ()).throw(CommandFailed("no such thing")), is_watched=True)


@pytest.mark.parametrize(
    ("dcs", "nodes", "ill", "code", "said"),
    [
        ([UP], [READY], [], 0, ["HEALTHY"]),
        ([UP], [READY, {**GONE, "state": "LEFT"}], [], 0, ["HEALTHY"]),
        ([UP], [READY, GONE], [], 1, ["UNHEALTHY", "dc1 n2 is GONE: not heard from for 12 s"]),
        ([UP], [READY], [ILL], 1, ["UNHEALTHY", "shop.orders billing: 4 dead letters are open"]),
        ([UP, AWAY], [READY], [], 2, ["UNKNOWN", "dc2: its log is away"]),
        (
            [UP, AWAY],
            [READY, GONE],
            [],
            1,
            ["UNHEALTHY", "dc1 n2 is GONE: not heard from for 12 s", "dc2: its log is away"],
        ),
        ([UP], [], [], 2, ["UNKNOWN", "no node is known"]),
    ],
)
def test_check_tells_scripts_whether_all_is_well(hermes, server, dcs, nodes, ill, code, said):
    server.on("GET /status/nodes", (200, {"datacenters": dcs, "nodes": nodes}))
    server.on("GET /status/subscriptions?unhealthy=true", (200, {"subscriptions": ill}))
    result = hermes("status", "--check")
    assert (result.exit_code, result.stdout.splitlines()) == (code, said)
    result = hermes("status", "--check", "-o", "json")
    assert json.loads(result.stdout) == {"status": said[0], "reasons": said[1:]}
    assert result.exit_code == code


def test_check_cannot_tell_what_it_cannot_ask(hermes, server):
    server.on("GET /status/nodes", (503, {"message": "starting", "code": "OTHER"}))
    result = hermes("status", "--check")
    assert result.exit_code == 2
    assert result.stdout.startswith("UNKNOWN\n")


@pytest.mark.parametrize(
    "line", [["status", "--check", "--watch"], ["subscription", "list", "shop.orders", "--watch"]]
)
def test_what_cannot_be_watched_is_refused(hermes, server, line):
    assert hermes(*line).exit_code == 2
    assert server.made() == []
