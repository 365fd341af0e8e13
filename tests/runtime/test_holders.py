"""Who held a loop is named by its code and by who supervises it."""

import random
import sys
import threading

import trio
import trio.lowlevel

from hermes_actors.actors.supervisor import open_supervisor
from hermes_actors.runtime import guest
from hermes_actors.runtime.holders import (
    OTHER,
    Holder,
    StackFrame,
    frames_of,
    holder_of,
    place_of,
    task_paths,
)

GUEST = StackFrame("/x/hermes_actors/runtime/guest.py", 1, "run")
TRIO = StackFrame("/lib/trio/_core/_run.py", 2, "unrolled_run")
SUPERVISOR = StackFrame("/x/hermes_actors/actors/supervisor.py", 3, "Supervisor._supervise")
COMMAND = StackFrame("/x/hermes_actors/cli/nodes/node.py", 4, "run_node")
REGISTRY = StackFrame("/x/hermes_actors/metadata/registry.py", 5, "Registry.run")
VIEW = StackFrame("/x/hermes_actors/metadata/view.py", 6, "View.fold")
RE = StackFrame("/lib/re.py", 7, "match")


def never() -> str:
    raise AssertionError("no task runs")


def test_an_actor_is_named_by_its_class_and_its_place_by_the_innermost_line_of_ours() -> None:
    frames = [COMMAND, GUEST, TRIO, SUPERVISOR, REGISTRY, VIEW, RE]
    assert holder_of(frames, lambda: "registry dc1") == Holder(
        "Registry", "registry dc1", "metadata/view.py:6 View.fold"
    )


def test_what_the_host_runs_is_supervised_by_nobody_and_named_all_the_same() -> None:
    edge = StackFrame(
        "/x/hermes_actors/publisher/edges/http1/connection.py", 8, "Http1.data_received"
    )
    assert holder_of([COMMAND, GUEST, edge], never).kind == "Http1"
    # The command that started it all is in every stack, and holds nothing.
    assert holder_of([COMMAND, GUEST, RE], never) == Holder(OTHER, "", "/lib/re.py:7 match")
    assert holder_of([], never).kind == OTHER


def test_a_function_without_a_class_is_its_own_kind() -> None:
    beat = StackFrame("/x/hermes_actors/node/root.py", 9, "open_node.<locals>.beat")
    assert holder_of([GUEST, TRIO, beat], str).kind == "open_node"
    odd = StackFrame("/x/hermes_actors/node/root.py", 9, "<lambda>")
    assert holder_of([GUEST, TRIO, odd], str).kind == OTHER


def test_a_place_has_its_file_from_our_package_on() -> None:
    assert place_of([REGISTRY]) == "metadata/registry.py:5 Registry.run"
    assert place_of([RE]) == "/lib/re.py:7 match"
    assert place_of([]) == ""


def test_a_supervised_task_is_known_by_its_path_from_another_thread() -> None:
    found: list[str] = []
    frames: list[StackFrame] = []

    async def main() -> None:
        path, loop = task_paths(), threading.get_ident()

        def look() -> None:
            frames.extend(frames_of(sys._current_frames()[loop]))
            found.append(path())

        def hold() -> None:
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()

        async def inner(_stop: trio.Event) -> None:
            async with trio.open_nursery() as nursery:

                async def work() -> None:
                    hold()

                nursery.start_soon(work)

        async def outer(stop: trio.Event) -> None:
            async with open_supervisor(random.Random(1)) as children:
                children.start_task("a.b$c", inner)
                await stop.wait()

        async with open_supervisor(random.Random(1)) as control:
            control.start_task("agent", outer)
            while not found:
                await trio.lowlevel.checkpoint()

    guest.run(main, host="asyncio")
    assert found == ["agent / a.b$c"]
    # Where the watch stands still beside it, trio's own frame is in the stack.
    assert any(each.function == "unrolled_run" for each in frames)
    assert holder_of(frames, lambda: "here").path == "here"
