"""What an operator hears who has something read again."""

import pytest
import trio
import trio.testing

from hermes_actors.security.users import WrongFile
from hermes_actors.security.watched import Watched


class Source:
    """Bytes that are read while `may_end` is set."""

    def __init__(self) -> None:
        self.content = b"1"
        self.begun = trio.Event()
        self.may_end = trio.Event()

    async def read(self) -> bytes:
        content = self.content
        self.begun.set()
        await self.may_end.wait()
        return content


async def parse(content: bytes) -> int:
    try:
        return int(content)
    except ValueError as error:
        raise WrongFile("is no number") from error


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def watched(source, clock):
    return Watched("a.field", "a file", source.read, parse, 0, clock, interval_s=60.0)


async def test_the_result_is_that_of_a_read_that_began_after_the_request(
    source, watched, nursery, autojump_clock
):
    nursery.start_soon(watched.run)
    await source.begun.wait()
    source.content = b"2"
    said: list[str] = []

    async def ask() -> None:
        said.append(await watched.read_now())

    async with trio.open_nursery() as asking:
        asking.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        source.may_end.set()
    assert (watched.value, said) == (2, ["has changed"])
    assert await watched.read_now() == "has not changed"
    source.content = b"x"
    assert await watched.read_now() == "is no number"
    assert watched.value == 2


async def test_nobody_waits_for_ever_for_what_is_not_read(watched, autojump_clock):
    start_s = trio.current_time()
    assert await watched.read_now() == "is not read yet"
    assert trio.current_time() - start_s <= 10
