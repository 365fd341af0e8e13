"""`--filter`: in short or as JSON; what cannot be a filter is refused before anything is sent."""

import contextlib
import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.subscriptions.filter_options import filters_of

SUBSCRIPTIONS = "POST /topics/a.b/subscriptions"


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("jsonpath:$.country=PL|DE", [{"path": "$.country", "matcher": "PL|DE"}]),
        ("jsonpath: $.a.b =x=y", [{"path": "$.a.b", "matcher": "x=y"}]),
        (
            "jsonpath:$.lines[?(@.sku=='a=b')].n=1",
            [{"path": "$.lines[?(@.sku=='a=b')].n", "matcher": "1"}],
        ),
        ("jsonpath:$['a]=']=x", [{"path": "$['a]=']", "matcher": "x"}]),
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


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("country=PL", "expected jsonpath:$.country=PL, header:Channel=web, or JSON"),
        ("xpath:/a=b", "expected jsonpath:$.country=PL"),
        ("jsonpath:$.country", "expected jsonpath:PATH=REGEX, for example jsonpath:$.country=PL"),
        ("jsonpath:=PL", "expected jsonpath:PATH=REGEX"),
        ("header:Channel=", "expected header:HEADER=REGEX, for example header:Channel=web"),
        ("jsonpath:$.a[?(@.b==1)]", "expected jsonpath:PATH=REGEX"),
        ('{"type":', "not JSON: Expecting value"),
        ("[1]", "expected a JSON object"),
        ('{"type":"header","name":"A","matcher":"x"}', "unknown field name; there are header, "),
        ('{"type":"header","header":"A"}', "missing required field `matcher`"),
        ('{"type":"xpath","path":".a","matcher":"x"}', "type "),
        ("avropath:order.country", "expected avropath:PATH=REGEX, for example avropath:order.c"),
        ("avropath:a..b=x", "path "),
        ("jsonpath:$.country=(", "matcher "),
        ("jsonpath:$.a[=x", "'[=x' is not closed before an ="),
    ],
)
def test_what_is_no_filter_is_refused_with_the_reason_and_what_was_meant(
    hermes, server, text, reason
):
    options = ["--endpoint", "http://x/", "--filter", text]
    result = hermes("subscription", "create", "a.b", "s", *options)
    assert result.exit_code == 2
    assert "--filter" in result.stderr
    assert reason in result.stderr
    assert server.made() == []


@given(st.text())
def test_any_other_text_is_wrong_usage_that_names_the_option(text):
    assume(not text.startswith(("jsonpath:", "header:", "[")))
    with pytest.raises(UsageWrong, match="--filter"):
        filters_of([text])


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


def test_without_the_option_nothing_is_said_of_filters(hermes, server):
    server.on(SUBSCRIPTIONS, (201, b""))
    hermes("subscription", "create", "a.b", "s", "--endpoint", "http://x/")
    assert "filters" not in server.calls[0].json()


def test_filters_in_short_can_be_tried_first(hermes, server):
    server.on("POST /filters/a.b", (200, {"status": "MATCHED"}))
    arguments = ("a.b", "-m", "{}", "--filter", "jsonpath:$.a=1")
    assert hermes("subscription", "filter-test", *arguments).stdout == "MATCHED\n"
    assert server.calls[0].json()["filters"] == [
        {"type": "jsonpath", "path": "$.a", "matcher": "1"}
    ]
