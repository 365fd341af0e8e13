"""`hermes subscription why`: of nodes that fare alike it tells once, and the cause comes first."""

import pytest

PATH = "/topics/shop.orders/subscriptions/billing"
CALM = "there is nothing to deliver"
FULL = {"rateLevel": "FULL", "rateNow": 400.0, "rateMax": 400}


def node(name, state="IDLE", **more):
    return {"node": name, "state": state, "rate": 0.0, "lag": 0, "reason": CALM, **more}


def in_dc(name, *nodes, **more):
    return {"datacenter": name, "isKnown": True, "nodes": list(nodes), **more}


@pytest.fixture
def why(hermes, server, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")

    def ask(*datacenters):
        found = {"state": "ACTIVE", "datacenters": list(datacenters)}
        server.on(f"GET {PATH}/why", (200, found))
        return hermes("subscription", "why", "shop.orders", "billing").stdout.splitlines()[2:]

    return ask


def cells(line):
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_datacentres_at_rest_are_one_line(why):
    lines = why(
        in_dc("dc1", node("n1", **FULL), node("n2", **FULL)),
        in_dc("dc2", node("n3", **FULL), node("n4", **FULL)),
        in_dc("dc3", node("n5", **FULL)),
    )
    assert cells(lines[0]) == ["dc1, dc2, dc3", "n1, n2, n3 and 2 more", "IDLE", "0.0", "0", CALM]
    (line,) = lines[1:]
    assert line == (
        "dc1 n1, dc1 n2, dc2 n3 and 2 more: the endpoint gets up to 400.0 a second, all that the "
        "subscription allows"
    )


def test_one_at_rest_is_shown_as_it_is(why):
    (line,) = why(in_dc("dc1", node("n1")))
    assert cells(line) == ["dc1", "n1", "IDLE", "0.0", "0", CALM]


def test_what_is_not_alike_stays_apart(why):
    lines = why(
        in_dc("dc1", node("n1"), node("n2", reason="its filters let nothing pass")),
        in_dc("dc2", node("n3", "FAILING", reason="HTTP 503", lastFailure="HTTP 503", **FULL)),
        in_dc(
            "dc3",
            node("n4"),
            node("n5", "FAILING", reason="HTTP 502", lastFailure="HTTP 502", **FULL),
        ),
    )
    assert [cells(line)[:2] for line in lines[:4]] == [
        ["dc1, dc3", "n1, n4"],
        ["dc1", "n2"],
        ["dc2", "n3"],
        ["dc3", "n5"],
    ]
    assert [line.partition(":")[0] for line in lines[4:]] == ["dc2 n3", "dc3 n5"]


FAILING = {"state": "FAILING", "lastFailure": "HTTP 503", "rateLevel": "SLOW", "rateNow": 1.0}


def test_failing_nodes_that_differ_in_figures_alone_are_one_row_and_one_line(why):
    def slow(name, for_s, lag):
        reason = f"HTTP 503; one message a second for {for_s} s, until one succeeds"
        times = {"lastFailureAt": 60 + for_s, "oldestAgeMs": 1_000 * for_s}
        return node(name, **FAILING, **times, reason=reason, lag=lag, inflight=1)

    (row, line) = why(
        in_dc("dc1", slow("n1", 9, 5), slow("n2", 10, 7)), in_dc("dc2", slow("n3", 10.5, 6))
    )
    assert cells(row)[:5] == ["dc1, dc2", "n1, n2, n3", "FAILING", "0.0", "18"]
    assert cells(row)[5] == "HTTP 503; one message a second for 10 s, until one succeeds"
    assert line == (
        "dc1 n1, dc1 n2, dc2 n3: the endpoint gets a single message about each second, until one "
        "succeeds; of 18 messages not settled 3 in flight, 0 waiting for a retry, the oldest 10 s "
        "old; last failure 1970-01-01T00:01:10Z; no success since the node's start"
    )


def test_nodes_whose_endpoints_answer_differently_are_told_of_one_by_one(why):
    rows = why(
        in_dc(
            "dc1",
            node("n1", **FAILING, reason="HTTP 503; the endpoint takes nothing"),
            node("n2", **{**FAILING, "lastFailure": "HTTP 500"}, reason="HTTP 500; it fails"),
        )
    )
    assert [cells(row)[1] for row in rows[:2]] == ["n1", "n2"]


@pytest.fixture
def asked(hermes, server, monkeypatch):
    """The answer about an endpoint of which there is much to say, in 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    failing = node("consumers-dc1-1", **FAILING, reason="HTTP 503", lastFailureAt=1)
    server.on(f"GET {PATH}/why", (200, {"state": "ACTIVE", "datacenters": [in_dc("dc1", failing)]}))
    return lambda: hermes("subscription", "why", "shop.orders", "billing").stdout.splitlines()


def test_in_a_pipe_a_sentence_is_one_line_so_that_it_can_be_searched(asked):
    (sentence,) = asked()[3:]
    assert sentence.startswith("dc1 consumers-dc1-1: the endpoint gets a single message")
    assert sentence.endswith("no success since the node's start")


def test_on_a_terminal_lines_break_between_words_and_are_indented(asked, monkeypatch):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    lines = asked()
    assert max(map(len, lines)) <= 80
    assert lines[3].startswith("dc1 consumers-dc1-1: the endpoint gets a single message")
    assert all(line.startswith("    ") for line in lines[4:])
    assert "no success since the node's start" in " ".join(map(str.strip, lines))


def test_figures_of_what_is_at_rest_are_summed_and_not_known_as_soon_as_one_is_not(why):
    (line,) = why(in_dc("dc1", node("n1", lag=2, rate=0.1)), in_dc("dc2", node("n2", lag=3)))
    assert cells(line)[3:5] == ["0.1", "5"]
    for lags in ((-1, 3), (3, -1)):
        (line,) = why(in_dc("dc1", node("n1", lag=lags[0])), in_dc("dc2", node("n2", lag=lags[1])))
        assert cells(line)[4] == "?"


def test_datacentres_that_nobody_tells_of_are_one_line_where_the_reason_is_the_same(why):
    away = {"isKnown": False, "reason": "its log is away"}
    lines = why(
        in_dc("dc1", node("n1")),
        {"datacenter": "dc2", "nodes": [], **away},
        {"datacenter": "dc3", "nodes": [], **away},
    )
    assert cells(lines[1]) == ["dc2, dc3", "its log is away"]


TAKEN = {
    "ownedForS": 300.0,
    "takenOverFrom": ["n9"],
    "takenOverBecause": "node n9 left",
}


def test_a_new_owner_that_tells_of_no_failure_is_said_to_be_one(why):
    (_, line) = why(in_dc("dc1", node("n1", "DELIVERING", lag=5, **TAKEN)))
    assert line == (
        "dc1 n1: it has been this node's for 5 min, and n9's before (node n9 left): "
        "what failed there is not told here"
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"state": "IDLE"},
        {"ownedForS": 4_000.0},
        {"takenOverFrom": []},
    ],
)
def test_nothing_is_said_of_it_where_that_is_long_ago_or_does_not_matter(why, fields):
    (_,) = why(in_dc("dc1", {**node("n1", "DELIVERING", lag=5), **TAKEN, **fields}))


def test_without_a_success_it_is_said_for_how_long_the_node_could_have_had_one(why):
    failing = node("n1", "FAILING", lastFailure="reset", lastFailureAt=0, **TAKEN)
    (_, line) = why(in_dc("dc1", failing))
    assert line.endswith("; no success in the 5 min that the node has had it")


def test_a_node_that_is_silent_is_not_shown_as_if_it_ran(why):
    at_work = node("a", "DELIVERING", reason="5.0 messages a second", **FULL)
    heard, silent = {"heardAgoMs": 2_999}, {"heardAgoMs": 4_200}
    (row, line) = why(in_dc("dc1", at_work | heard))
    assert row.endswith("  5.0 messages a second")
    assert line == "dc1 a: the endpoint gets up to 400.0 a second, all that the subscription allows"
    # What it told of the present is not so any more; what it told of the past is.
    (row,) = why(in_dc("dc1", at_work | silent))
    assert row.endswith("  not heard of for 4.2 s; told before: 5.0 messages a second")
    failed = {"lastFailure": "reset", "lastFailureAt": 1, "lastSuccessAt": 2}
    (_, line) = why(in_dc("dc1", at_work | silent | failed))
    assert line == (
        "dc1 a: last failure 1970-01-01T00:00:01Z: reset; last success 1970-01-01T00:00:02Z"
    )


def test_a_silent_node_at_rest_is_not_one_with_those_that_are_heard_of(why):
    rows = why(in_dc("dc1", node("a"), node("b", heardAgoMs=6_000), node("c")))
    assert [row.split("  ")[-1] for row in rows] == [
        CALM,
        f"not heard of for 6.0 s; told before: {CALM}",
    ]


def test_an_unknown_node_is_said_to_be_so_once(why):
    unknown = node("a", "UNKNOWN", reason="its status of 7 s ago is the last that is known")
    (row,) = why(in_dc("dc1", unknown | {"heardAgoMs": 7_000}))
    assert row.endswith("  its status of 7 s ago is the last that is known")


def test_rates_beside_filters_say_what_they_count(why):
    reason = "its filters let nothing pass: about 60 messages a minute are filtered out now"
    (_, line) = why(in_dc("dc1", node("a", reason=reason, filtered=7)))
    assert line == "dc1 a: Deliv./s is what the endpoint takes; what is filtered out is not in it"
    some = node("a", "DELIVERING", reason="2.0 messages a second", rate=2.0, filtered=7)
    (_, line) = why(in_dc("dc1", some))
    assert line == "dc1 a: Deliv./s is without what its filters leave out: 7 messages so far"
    assert len(why(in_dc("dc1", node("a", filtered=7)))) == 1


def test_the_attempts_of_the_message_that_failed_last_are_told(why):
    failing = node("n1", **FAILING, reason="HTTP 503", lastFailureAt=1, lastFailureAttempt=3)
    (_, line) = why(in_dc("dc1", failing))
    assert "; last failure 1970-01-01T00:00:01Z (attempt 3 of its message); " in line
    other = node("n2", **FAILING, reason="HTTP 503", lastFailureAt=1, lastFailureAttempt=7)
    (_, line) = why(in_dc("dc1", failing, other))
    assert "(attempt 7 of its message)" in line
    (_, line) = why(in_dc("dc1", failing | {"lastFailureAttempt": 0}))
    assert "attempt" not in line


def test_how_long_pushes_take_is_told_in_seconds(why):
    at_work = node("a", "DELIVERING", reason="5.0 messages a second", **FULL)
    (_, line) = why(in_dc("dc1", at_work | {"latencyMs": {"p50": 12, "p99": 1_234}}))
    assert line.endswith("; pushes of the last minute took 0.012 s (half), 1.23 s (99 %) at most")
    (_, line) = why(in_dc("dc1", at_work))
    assert "took" not in line


def test_a_subscription_without_a_limit_is_not_said_to_have_one_of_nothing(why):
    (_, line) = why(in_dc("dc1", node("a", rateLevel="FULL", rateNow=0.0)))
    assert line == "dc1 a: the endpoint gets as much as it takes: the subscription has no limit"
