"""`hermes subscription suspend|activate`: one, several, or all that a pattern fits."""

import json

import pytest

PATH = "/topics/a.b/subscriptions"


@pytest.fixture
def names(server):
    there = ["mail", "billing-eu", "billing-us"]
    server.on(f"GET {PATH}", (200, there))
    for each in there:
        server.on(f"PUT {PATH}/{each}/state", (200, b""))
        server.on(f"GET {PATH}/{each}", (200, {"name": each}))
    return there


def puts(server):
    return [call.path.split("/")[-2] for call in server.calls if call.method == "PUT"]


@pytest.mark.parametrize(("verb", "state"), [("activate", "ACTIVE"), ("suspend", "SUSPENDED")])
def test_several_are_asked_for_in_their_order_without_a_question(
    hermes, server, names, verb, state
):
    result = hermes("subscription", verb, "a.b", "mail", "billing-us", "mail")
    assert result.exit_code == 0
    assert puts(server) == ["mail", "billing-us"]
    assert {call.json() for call in server.calls} == {state}
    assert result.stdout.splitlines() == [
        f"subscription {each} of a.b: asked to be {state}" for each in ("mail", "billing-us")
    ]


def test_a_pattern_wants_a_yes_and_says_what_it_would_do(hermes, server, names):
    result = hermes("subscription", "activate", "a.b", "billing-*")
    assert result.exit_code == 2
    assert (
        "to activate 2 subscriptions of a.b (billing-eu, billing-us), give --yes" in result.stderr
    )
    assert puts(server) == []


def test_with_a_yes_all_that_fit_are_asked_for_once(hermes, server, names):
    arguments = ("a.b", "billing-u?", "*", "--yes")
    assert hermes("subscription", "activate", *arguments).exit_code == 0
    assert puts(server) == ["billing-us", "billing-eu", "mail"]


def test_a_pattern_that_none_fits_names_those_that_there_are(hermes, server, names):
    result = hermes("subscription", "suspend", "a.b", "search*", "--yes")
    assert result.exit_code == 2
    assert "no subscription of a.b fits 'search*'; there are: billing-eu, bill" in result.stderr
    assert puts(server) == []


def test_one_that_is_refused_holds_up_no_other(hermes, server, names):
    refusal = {"message": "no such", "code": "SUBSCRIPTION_NOT_EXISTS"}
    server.on(f"PUT {PATH}/gone/state", (400, refusal))
    result = hermes("subscription", "activate", "a.b", "gone", "mail")
    assert result.exit_code == 1
    assert puts(server) == ["gone", "mail"]
    assert result.stdout == "subscription mail of a.b: asked to be ACTIVE\n"
    assert "1 of 2 failed: " in result.stderr
    assert "no such" in result.stderr
    for asked in (["gone"], ["gone", "gone"]):
        alone = hermes("subscription", "activate", "a.b", *asked)
        assert (alone.exit_code, "of 1 failed" in alone.stderr) == (1, False)


def test_what_is_no_name_is_said_before_any_other_is_changed(hermes, server, names):
    result = hermes("subscription", "suspend", "a.b", "mail", "..")
    assert (result.exit_code, puts(server)) == (2, [])
    assert "'..' is not a name" in result.stderr


def test_as_json_each_is_a_line(hermes, server, names):
    result = hermes("subscription", "activate", "a.b", "mail", "billing-eu", "-o", "json")
    shown = [json.loads(line) for line in result.stdout.splitlines()]
    assert shown == [{"name": "mail"}, {"name": "billing-eu"}]
