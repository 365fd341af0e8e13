"""Bytes that mean harm get through the HTTP/1.1 edge no better than through h11."""

import os

import pytest

from tests.publisher.hostile_run import Verdict, run

INPUTS = int(os.environ.get("HERMES_HOSTILE_INPUTS", "20000"))
GROWTH_MAX_KIB = 16_384


def check(verdict: Verdict) -> None:
    assert verdict.wrong == []
    assert verdict.counts["requests"] > 0
    assert verdict.counts["refused"] >= verdict.counts["refused by h11"] > 0


def test_what_h11_refuses_is_refused_and_each_request_has_its_answer() -> None:
    check(run(300, seed=3))


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_the_same_of_many_inputs_and_memory_does_not_grow() -> None:
    verdict = run(INPUTS, seed=1)
    check(verdict)
    growth_kib = verdict.counts["KiB at the end"] - verdict.counts["KiB after a tenth"]
    assert growth_kib < GROWTH_MAX_KIB
