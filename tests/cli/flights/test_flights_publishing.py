"""The demonstration's pace: when each row leaves."""

import pytest
import trio

from hermes_actors.cli.publishing.publisher import OutgoingMessage


@pytest.fixture
def stream(hermes):
    from examples.flights.publishing import stream

    return stream


ROWS = [OutgoingMessage(number, b"{}") for number in (11, 13, 14, 21)]


async def leaving_s(source):
    began_s = trio.current_time()
    return {message.number: trio.current_time() - began_s async for message in source}


async def test_a_row_leaves_when_it_is_due_whoever_publishes_those_between(stream, autojump_clock):
    left = await leaving_s(stream(ROWS, first=11, rate_per_s=10))
    assert left == pytest.approx({11: 0, 13: 0.2, 14: 0.3, 21: 1.0})


async def test_without_a_rate_all_rows_leave_at_once(stream, autojump_clock):
    left = await leaving_s(stream(ROWS, first=11, rate_per_s=0))
    assert left == {11: 0, 13: 0, 14: 0, 21: 0}


async def test_what_could_not_leave_in_time_is_not_put_off_further(stream, autojump_clock):
    source = stream(ROWS, first=11, rate_per_s=10)
    await anext(source)
    await trio.sleep(5)
    assert await leaving_s(source) == {13: 0, 14: 0, 21: 0}
