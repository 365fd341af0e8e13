"""How a subscription fares on a node, by its consumer's figures, and why: as codes."""

import pytest

from hermes_actors.status.judging import judged
from hermes_actors.status.reasons import Code, because
from hermes_actors.status.record import Flow, SubscriptionStatus

NOW_MS = 1_700_000_000_000
REFUSED = {"last_failure": "connect: refused", "last_failure_at_ms": NOW_MS}
SLOW = because(Code.ONE_A_SECOND, for_s=9.0)
SUSPENDED = because(Code.SUSPENDED)


def fares(rates, fields):
    flow = Flow(**{name: round(1_000 * rate) for name, rate in rates.items()})
    entry = SubscriptionStatus(name="a.b$c", rates=flow, **{"lag": 0, **fields})
    state, reasons = judged(entry, NOW_MS)
    return state, [each.code for each in reasons]


@pytest.mark.parametrize(
    ("rates", "fields", "state", "codes"),
    [
        ({}, {}, "IDLE", ["IDLE"]),
        ({}, {"lag": 9}, "IDLE", ["QUIET"]),
        ({}, {"lag": -1}, "UNKNOWN", ["LAG_UNKNOWN"]),
        ({"delivered": 5}, {"reasons": (SUSPENDED,)}, "STOPPED", ["SUSPENDED"]),
        # What stops it comes alone, for nothing else is so any more.
        ({}, {"reasons": (SUSPENDED, SLOW), "level": "SLOW"}, "STOPPED", ["SUSPENDED", SLOW.code]),
        ({}, {"level": "SLOW", "reasons": (SLOW,)}, "FAILING", ["FAILS", SLOW.code]),
        ({}, {"level": "HEARTBEAT"}, "FAILING", ["FAILS"]),
        ({}, {"level": "ADAPTING"}, "IDLE", ["IDLE"]),
        ({"codes_5xx": 5}, REFUSED, "FAILING", ["FAILS"]),
        (
            {"delivered": 5, "codes_2xx": 5, "timeouts": 1},
            REFUSED,
            "DELIVERING",
            ["DELIVERS", "SOME_FAIL"],
        ),
        ({}, {"waiting_retries": 3, **REFUSED}, "FAILING", ["FAILS", "UNSETTLED"]),
        ({}, {"inflight": 3, **REFUSED, "last_failure_at_ms": 1}, "DELIVERING", ["UNSETTLED"]),
        # It failed for a while, recovered, and had one message to take: rates fall slowly.
        (
            {"delivered": 0.02, "codes_2xx": 0.02, "other_errors": 4},
            {"last_failure_at_ms": NOW_MS - 16_000, "last_success_at_ms": NOW_MS - 15_000},
            "IDLE",
            ["IDLE"],
        ),
        # One gets through now and then, the others wait.
        (
            {"delivered": 1, "codes_2xx": 1, "codes_5xx": 99},
            {**REFUSED, "last_success_at_ms": NOW_MS, "waiting_retries": 50, "lag": 90},
            "FAILING",
            ["FAILS", "UNSETTLED"],
        ),
        # It took much until it died: the rate of what it took has not fallen yet.
        (
            {"delivered": 40, "codes_2xx": 40, "other_errors": 20},
            {**REFUSED, "last_success_at_ms": NOW_MS - 11_000, "waiting_retries": 50, "lag": 90},
            "FAILING",
            ["FAILS", "UNSETTLED"],
        ),
        # The pauses between retries may be long.
        (
            {},
            {**REFUSED, "last_failure_at_ms": NOW_MS - 300_000, "waiting_retries": 1, "lag": 1},
            "FAILING",
            ["FAILS", "UNSETTLED"],
        ),
        # What failed last was given up, long ago.
        (
            {},
            {"last_failure_at_ms": NOW_MS - 300_000, "last_success_at_ms": 1},
            "IDLE",
            ["IDLE"],
        ),
        ({"delivered": 0.02, "codes_2xx": 0.02}, {"lag": 3}, "DELIVERING", ["DELIVERS_FEW"]),
        # A filter that drops everything looks idle from outside.
        ({"filtered": 2}, {"counts": Flow(filtered=31)}, "IDLE", ["FILTERED_OUT"]),
        ({}, {"counts": Flow(filtered=31)}, "IDLE", ["IDLE", "ALL_FILTERED"]),
        # A missing token is the failure itself.
        (
            {},
            {"waiting_retries": 1, **REFUSED, "reasons": (because(Code.UNAUTHORIZED, detail="p"),)},
            "FAILING",
            ["UNSETTLED", "UNAUTHORIZED"],
        ),
    ],
)
def test_a_state_has_its_reasons_the_cause_first(rates, fields, state, codes):
    assert fares(rates, fields) == (state, codes)
