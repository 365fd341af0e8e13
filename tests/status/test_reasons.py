"""The sentences of reasons."""

import string

import pytest

from hermes_actors.status.reasons import Code, Reason, as_json, because, sentence, sentences


def params(code):
    names = [name for _, name, _, _ in string.Formatter().parse(code.value) if name]
    return {name: 61.5 if name.endswith("_s") else 1_700_000_000_000 for name in names}


@pytest.mark.parametrize("code", Code, ids=lambda code: code.name)
def test_each_code_has_a_sentence_of_its_parameters(code):
    text = sentence(because(code, **params(code)))
    assert text
    assert not set("{}?\n") & set(text)
    # It goes on in a line with others.
    assert not text.endswith(".")


def test_parameters_are_written_as_people_read_them():
    lowered = because(Code.RATE_LOWERED, rate=0.5, rate_max=400.0, for_s=180.0)
    assert sentence(lowered) == "the rate is down to 0.5 of 400.0 messages a second for 3 min"
    assert sentence(because(Code.LAST_SUCCESS, at_ms=0)) == "last success 1970-01-01T00:00:00Z"
    assert sentence(because(Code.FAILS, failure="a\nb")) == "pushes fail: a b"
    assert sentences([because(Code.IDLE), because(Code.STARTING)]) == (
        "there is nothing to deliver; it is starting"
    )


def test_a_newer_versions_reason_is_shown_by_its_code():
    assert sentence(Reason("ECLIPSE", {"sun": 1})) == "ECLIPSE {'sun': 1}"
    assert sentence(Reason("LOG_AWAY")) == "the log cannot be read: ?"
    (shown,) = as_json([Reason("ECLIPSE")])
    assert shown == {"code": "ECLIPSE", "params": {}, "text": "ECLIPSE"}
    assert not Reason("ECLIPSE").is_stop
