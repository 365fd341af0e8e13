"""`--filter`: in short or as JSON; what cannot be a filter is refused before anything is sent."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.subscriptions.filter_options import filters_of

SUBSCRIPTIONS = "POST /topics/a.b/subscriptions"


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("jsonpath:$.country=PL|DE", [{"path": "$.country", "matcher": "PL|DE"}]),
        ("jsonpath: $.a.b =x=y", [{"path": "$.a.b", "matcher": "x=y"}]),
        ("avropath:a.xs[*].n=x=y", [{"path": "a.xs[*].n", "matcher": "x=y"}]),
        ("header:Channel=web=.*", [{"header": "Channel", "matcher": "web=.*"}]),
        (
            '{"type":"jsonpath","path":"$.a","matcher":"x","matchingStrategy":"any"}',
            [{"path": "$.a", "matcher": "x", "matchingStrategy": "any"}],
        ),
        (
            '[{"type":"header","header":"A","matcher":"x"},{"type":"jsonpath","path":"$","matcher":"y"}]',
            [{"header": "A", "matcher": "x"}, {"path": "$", "matcher": "y"}],
        ),
    ],
)
def test_a_filter_is_taken_in_short_or_as_json(text, filters):
    path_type = "avropath" if text.startswith("avropath") else "jsonpath"
    kinds = [{"type": "header" if "header" in each else path_type} for each in filters]
    assert filters_of([text]) == [a | b for a, b in zip(kinds, filters, strict=True)]


@given(st.text(), st.sampled_from(["jsonpath:", "header:"]))
def test_in_short_any_text_is_one_filter_of_its_kind_or_wrong_usage(text, kind):
    with contextlib.suppress(UsageWrong):
        (found,) = filters_of([kind + text])
        assert found["type"] + ":" == kind
        assert found["matcher"] == text[-len(found["matcher"]) :]


def test_filters_are_created_with_the_subscription_and_win_over_the_files(hermes, server, tmp_path):
    server.on(SUBSCRIPTIONS, (201, b""))
    file = tmp_path / "subscription.json"
    theirs = [{"type": "header", "header": "A", "matcher": "x"}]
    file.write_text(json.dumps({"name": "s", "endpoint": "http://x/", "filters": theirs}))
    create = ("subscription", "create", "a.b", "--from-file", str(file))
    assert hermes(*create).exit_code == 0
    options = ["--filter", "jsonpath:$.a=1", "--filter", "header:B=2"]
    assert hermes(*create, *options).exit_code == 0
    sent = [call.json()["filters"] for call in server.calls if call.method == "POST"]
    ours = [
        {"type": "jsonpath", "path": "$.a", "matcher": "1"},
        {"type": "header", "header": "B", "matcher": "2"},
    ]
    assert sent == [theirs, ours]
