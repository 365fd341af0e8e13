"""One form of times for people and programs."""

from datetime import timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.model.moments import is_of_some_zone, iso_ms, moment_ms

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("30s", NOW_MS - 30_000),
        ("15m", NOW_MS - 900_000),
        ("1h", NOW_MS - 3_600_000),
        ("2d", NOW_MS - 172_800_000),
        ("1w", NOW_MS - 604_800_000),
        (" 1h ", NOW_MS - 3_600_000),
        ("999999999w", 0),
        ("0", 0),
        ("1700000000123", 1_700_000_000_123),
        ("2023-11-14T22:13:20Z", NOW_MS),
        ("2023-11-14T23:13:20+01:00", NOW_MS),
        ("2023-11-14T22:13:20", NOW_MS),
        ("1960-01-01", 0),
        ("0001-01-01T00:00:00+23:00", 0),
    ],
)
def test_a_time_may_be_given_in_each_of_the_forms(text: str, ms: int) -> None:
    assert moment_ms(text, NOW_MS) == ms


@pytest.mark.parametrize("text", ["", "yesterday", "1700000000", "1 h", "-1h", "1.5h", "1y", "h"])
def test_anything_else_is_refused_with_the_forms_that_there_are(text: str) -> None:
    # Ten digits are seconds: taken for milliseconds they would mean January 1970.
    with pytest.raises(ValueError, match="how long ago"):
        moment_ms(text, NOW_MS)


def test_a_time_without_a_zone_is_in_the_zone_of_who_gives_it() -> None:
    zone = timezone(timedelta(hours=2))
    assert moment_ms("2023-11-15T00:13:20", NOW_MS, zone=zone) == NOW_MS
    assert is_of_some_zone("2023-11-15T00:13:20")
    assert not any(map(is_of_some_zone, ("2023-11-15T00:13:20Z", "1h", "1700000000123")))


@given(st.integers(0, 253_402_300_799_000))
def test_what_is_shown_can_be_given_back(ms: int) -> None:
    assert moment_ms(iso_ms(ms), NOW_MS) == ms
