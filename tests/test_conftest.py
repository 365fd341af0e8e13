"""What all tests rely on in tests/conftest.py."""

import pytest
import trio


@pytest.fixture
async def a_day_later(autojump_clock: trio.abc.Clock) -> None:
    await trio.sleep(86_400)


@pytest.mark.timeout(5)
async def test_a_test_runs_by_the_clock_that_only_its_fixture_asks_for(a_day_later: None) -> None:
    assert trio.current_time() >= 86_400
