import pytest
from aiokafka import errors

from hermes_actors.log.kafka.translate import Fate, error_name, produce_verdict


@pytest.mark.parametrize(
    ("code", "leader", "all_replicas"),
    [
        (0, Fate.STORED, Fate.STORED),
        (2, Fate.NOT_STORED, Fate.NOT_STORED),
        (3, Fate.NOT_STORED, Fate.PERHAPS_STORED),
        (5, Fate.NOT_STORED, Fate.PERHAPS_STORED),
        (6, Fate.NOT_STORED, Fate.PERHAPS_STORED),
        (7, Fate.PERHAPS_STORED, Fate.PERHAPS_STORED),
        (10, Fate.TOO_LARGE, Fate.TOO_LARGE),
        (17, Fate.REFUSED, Fate.REFUSED),
        (18, Fate.TOO_LARGE, Fate.TOO_LARGE),
        (19, Fate.NOT_STORED, Fate.NOT_STORED),
        (20, Fate.PERHAPS_STORED, Fate.PERHAPS_STORED),
        (29, Fate.NOT_STORED, Fate.NOT_STORED),
        (32, Fate.REFUSED_TOGETHER, Fate.REFUSED_TOGETHER),
        (45, Fate.OUT_OF_SEQUENCE, Fate.OUT_OF_SEQUENCE),
        (46, Fate.DUPLICATE, Fate.DUPLICATE),
        (56, Fate.PERHAPS_STORED, Fate.PERHAPS_STORED),
        (59, Fate.OUT_OF_SEQUENCE, Fate.OUT_OF_SEQUENCE),
        (87, Fate.REFUSED_TOGETHER, Fate.REFUSED_TOGETHER),
    ],
)
def test_a_batch_is_certainly_not_stored_only_when_no_broker_can_have_written_it(
    code, leader, all_replicas
):
    assert produce_verdict(code, waits_for_replicas=False).fate is leader
    assert produce_verdict(code, waits_for_replicas=True).fate is all_replicas


@pytest.mark.parametrize("code", [-1, 35, 999])
def test_an_answer_that_nobody_foresaw_may_mean_stored(code):
    assert produce_verdict(code, waits_for_replicas=False).fate is Fate.PERHAPS_STORED


@pytest.mark.parametrize("code", [3, 5, 6, 7, 9, 20, 56, 72, 74, 75])
def test_answers_of_a_broker_that_does_not_lead_ask_for_fresh_metadata(code):
    assert produce_verdict(code, waits_for_replicas=True).metadata_is_stale


def test_every_failure_has_a_reason_to_show():
    codes = [*errors.kafka_errors, 87, 999]
    for code in codes:
        if code:
            assert produce_verdict(code, waits_for_replicas=False).reason


def test_error_codes_have_names():
    assert error_name(6) == "NOT_LEADER_FOR_PARTITION (6)"
    assert error_name(999) == "error 999"
