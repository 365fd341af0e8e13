"""Costly questions about schemas, asked beside the loop, in a process that can be ended.

What a schema can cost is up to its author, and a library in machine code cannot be interrupted. So
one process, with low priority, answers one question at a time, within a limit of CPU time.
"""

import signal
import subprocess
import sys
from collections.abc import Callable

import trio
from msgspec import Struct

from hermes_actors.actors.mailbox import Inbox
from hermes_actors.errors import ErrorCode, HermesError, Refused, Unavailable
from hermes_actors.schema.questions import (
    ANSWERED,
    LENGTH_BYTES,
    Answer,
    Answerer,
    Question,
    SentQuestion,
    Tell,
    Told,
    prefixed,
    told,
)

COSTLY_MAX = 64
"""Questions that wait; more are told to come again."""

_ANSWER_TIMEOUT_S = 10.0
_CHUNK_BYTES = 65_536


class TooCostly(Refused):
    """The question took more CPU than it may."""


class Costly(Struct, frozen=True):
    """A question, the CPU time that it may take, and who is told the answer.

    `is_wanted` is False once nobody waits for the answer any more: it is not asked then.
    """

    question: Question
    cpu_s: float
    done: Tell
    is_wanted: Callable[[], bool] = lambda: True


class CheckProcess:
    """Answers the questions of its inbox in a process, started with the first one."""

    def __init__(self) -> None:
        self._process: trio.Process | None = None

    async def run(self, inbox: Inbox[Costly]) -> None:
        """Answer until asked to stop; whoever waits then is told that the node stops."""
        asked: list[Costly] = []
        try:
            while not inbox.is_closed and await inbox.wait():
                asked = inbox.receive_nowait(1)
                answer: Told = Unavailable("Nobody waits for the answer any more")
                if asked[0].is_wanted():
                    answer = await self._ask(asked[0])
                asked.pop().done(answer)
        finally:
            await self._end()
            for costly in [*asked, *inbox.receive_nowait(COSTLY_MAX)]:
                costly.done(Unavailable("The node stops checking messages; try again"))

    async def _ask(self, costly: Costly) -> Told:
        cpu_s = costly.cpu_s
        try:
            with trio.fail_after(_ANSWER_TIMEOUT_S):
                answer = await self._exchange(SentQuestion(costly.question, cpu_s))
        except trio.TooSlowError:
            await self._end()
            return Unavailable("The schema could not be asked: the machine is overloaded")
        except (trio.BrokenResourceError, EOFError):
            return await self._why_ended(cpu_s)
        except OSError as error:
            await self._end()
            return Unavailable(f"The schema could not be asked: no process starts: {error}")
        return told(answer)

    async def _exchange(self, asked: SentQuestion) -> Answer:
        process = self._process
        if process is None:
            process = self._process = await trio.lowlevel.open_process(
                [sys.executable, "-m", "hermes_actors.schema.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        assert process.stdin is not None, "it is a pipe"
        await process.stdin.send_all(prefixed(asked))
        length = await self._read(process, LENGTH_BYTES)
        return ANSWERED.decode(await self._read(process, int.from_bytes(length, "big")))

    async def _read(self, process: trio.Process, size: int) -> bytes:
        assert process.stdout is not None, "it is a pipe"
        read = bytearray()
        while len(read) < size:
            part = await process.stdout.receive_some(min(size - len(read), _CHUNK_BYTES))
            if not part:
                raise EOFError
            read += part
        return bytes(read)

    async def _why_ended(self, cpu_s: float) -> HermesError:
        process = self._process
        assert process is not None, "it has been asked"
        with trio.move_on_after(_ANSWER_TIMEOUT_S):
            await process.wait()
        await self._end()
        if process.returncode == -signal.SIGVTALRM:
            return TooCostly(
                f"The schema and what is compared with it take more than {cpu_s * 1_000:g} ms of "
                "CPU; make the schema simpler, or the message smaller"
            )
        return Unavailable(
            f"The process that checks schemas ended with {process.returncode}; try again",
            ErrorCode.INTERNAL_ERROR,
        )

    async def _end(self) -> None:
        """End the process, if there is one, and wait until it is gone."""
        process, self._process = self._process, None
        if process is None:
            return
        with trio.CancelScope(shield=True):
            process.kill()
            for stream in (process.stdin, process.stdout):
                assert stream is not None, "it is a pipe"
                await stream.aclose()
            await process.wait()


class CheckInPlace:
    """Answers on the loop, at no cost: for a simulation, whose time is not the machine's."""

    def __init__(self) -> None:
        self._answerer = Answerer()

    async def run(self, inbox: Inbox[Costly]) -> None:
        """Answer until asked to stop."""
        async for costly in inbox:
            costly.done(told(self._answerer.answer(costly.question)))
