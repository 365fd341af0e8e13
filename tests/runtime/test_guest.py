"""trio as a guest: results, errors, cancellation and signals cross the border both ways."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio

from hermes_actors.actors.mailbox import Inbox, Ref, open_mailbox
from hermes_actors.runtime import guest

hosts = pytest.mark.parametrize("host", ["asyncio", "uvloop"])


@hosts
def test_run_raises_what_main_raises(host: str) -> None:
    async def main() -> None:
        await trio.lowlevel.checkpoint()
        raise LookupError("from main")

    with pytest.raises(LookupError, match="from main"):
        guest.run(main, host=host)


@hosts
def test_everything_runs_on_one_thread(host: str) -> None:
    seen: set[int] = set()

    async def native() -> None:
        await asyncio.sleep(0)
        seen.add(threading.get_ident())

    async def main() -> None:
        seen.add(threading.get_ident())
        await guest.call(native)

    guest.run(main, host=host)
    assert seen == {threading.get_ident()}


@hosts
def test_call_raises_what_the_coroutine_raises(host: str) -> None:
    async def native() -> None:
        await asyncio.sleep(0)
        raise ConnectionError("refused")

    async def main() -> None:
        with pytest.raises(ConnectionError, match="refused"):
            await guest.call(native)

    guest.run(main, host=host)


@hosts
def test_cancelling_a_call_waits_for_the_end_of_the_coroutine(host: str) -> None:
    steps: list[str] = []

    async def native() -> None:
        try:
            steps.append("started")
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.001)
            steps.append("put away")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(guest.call, native)
            while not steps:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        steps.append("cancelled")

    guest.run(main, host=host)
    assert steps == ["started", "put away", "cancelled"]


@pytest.mark.parametrize("ending", ["value", "error"])
@hosts
def test_cancellation_wins_over_a_coroutine_that_finishes_all_the_same(
    host: str, ending: str
) -> None:
    async def native() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        if ending == "error":
            raise ConnectionError("too late")
        return "too late"

    async def main() -> bool:
        with trio.move_on_after(0.001) as scope:
            await guest.call(native)
        return scope.cancelled_caught

    assert guest.run(main, host=host)


@hosts
def test_a_coroutine_cancelled_on_the_host_side_is_an_ordinary_error_here(host: str) -> None:
    async def native() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async def main() -> None:
        with pytest.raises(guest.HostCancelled):
            await guest.call(native)

    guest.run(main, host=host)


@hosts
def test_the_host_side_may_tell_and_close_a_mailbox_without_a_bridge(host: str) -> None:
    async def main() -> list[int]:
        ref: Ref[int]
        inbox: Inbox[int]
        ref, inbox = open_mailbox(10)

        def write() -> None:
            for number in range(3):
                ref.tell(number)
            asyncio.get_running_loop().call_soon(inbox.close)

        asyncio.get_running_loop().call_soon(write)
        return [message async for message in inbox]

    assert guest.run(main, host=host) == [0, 1, 2]


@hosts
def test_main_is_wound_up_when_the_host_task_is_cancelled(host: str) -> None:
    """As Ctrl-C does while nobody listens for signals."""
    steps: list[str] = []

    async def main() -> None:
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.001)
            steps.append("put away")

    with pytest.raises(KeyboardInterrupt):
        guest.run(main, host=host)
    assert steps == ["put away"]


NODE = """
import sys, trio
from hermes_actors.runtime import guest
from hermes_actors.runtime.signals import stop_on_signal

async def main():
    drain = trio.Event()
    def begin_drain():
        print("drains", flush=True)
        drain.set()
    async with trio.open_nursery() as nursery:
        await nursery.start(stop_on_signal, begin_drain)
        print("ready", flush=True)
        await drain.wait()
        if sys.argv[2] == "stuck":
            await trio.sleep_forever()
        nursery.cancel_scope.cancel()
    print("ended", flush=True)

guest.run(main, host=sys.argv[1])
"""


@pytest.mark.live
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@hosts
def test_a_signal_begins_the_drain_of_a_process(
    host: str, number: signal.Signals, tmp_path: Path
) -> None:
    with start(tmp_path, host, "ends") as process:
        assert line_of(process) == "ready"
        process.send_signal(number)
        assert line_of(process) == "drains"
        assert line_of(process) == "ended"
        assert process.wait(20) == 0


@pytest.mark.live
@hosts
def test_a_second_signal_ends_a_process_that_is_stuck_in_its_drain(
    host: str, tmp_path: Path
) -> None:
    with start(tmp_path, host, "stuck") as process:
        assert line_of(process) == "ready"
        process.send_signal(signal.SIGTERM)
        assert line_of(process) == "drains"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 128 + signal.SIGTERM


@contextlib.contextmanager
def start(directory: Path, host: str, way: str):  # type: ignore[no-untyped-def]
    script = directory / "node.py"
    script.write_text(NODE)
    command = [sys.executable, "-W", "error", str(script), host, way]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()
