"""`hermes node --processes N`: several nodes of one configuration that share the publishing port,
each in a supervised process.
"""

import ctypes
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import trio
from msgspec.structs import replace

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.config import Config
from hermes_actors.config.ports import Port, ports
from hermes_actors.runtime.backoff import Backoff
from hermes_actors.runtime.clock import system_rng

PROCESSES_MAX = 64
_SHARED = ("frontend.port", "frontend.tls.port")
_PR_SET_PDEATHSIG = 1
_prctl = getattr(ctypes.CDLL(None), "prctl", None)
_FIRST_S = 0.5
_WAIT_MAX_S = 30.0
_STEADY_S = 60.0
"""A process that ran this long is started again without a longer wait."""
_logger = logging.getLogger(__name__)


def variables_of(config: Config, number: int) -> dict[str, str]:
    """The variables by which process `number`, from 1 on, differs from the configuration: its
    node's name, and the ports that it does not share.
    """
    found = {
        "HERMES_" + port.setting.upper().replace(".", "_"): str(port.number + number - 1)
        for port in _ports(config)
        if port.setting not in _SHARED and port.number
    }
    found |= {"HERMES_NODE": f"{config.node}-{number}", "HERMES_FRONTEND_REUSE_PORT": "true"}
    if config.metadata.replicator == config.node:
        found["HERMES_METADATA_REPLICATOR"] = f"{config.node}-1"
    return found


def check_shareable(config: Config, count: int) -> None:
    """Raise UsageWrong unless so many processes can run this configuration."""
    if not config.kafka.clusters:
        raise UsageWrong(
            "--processes needs Kafka: an embedded log (log.directory) belongs to one process; set "
            "kafka.clusters, or leave out --processes"
        )
    taken: dict[int, str] = {}
    for port in _ports(config):
        if not port.number:
            if port.setting in _SHARED:
                raise UsageWrong(
                    f"--processes needs a fixed {port.setting} for all of them to share, not 0"
                )
            continue
        for number in range(port.number, port.number + (1 if port.setting in _SHARED else count)):
            if number in taken:
                raise UsageWrong(
                    f"--processes {count}: {taken[number]} and {port.setting} would both be"
                    f" {number}; give one of them another port"
                )
            taken[number] = port.setting


def _ports(config: Config) -> Iterator[Port]:
    return ports(replace(config, frontend=replace(config.frontend, reuse_port=True)))


def run_processes(config: Config, arguments: Sequence[str], count: int) -> int:
    """Run `hermes node` with these arguments in `count` processes until a signal; returns the exit
    code.

    The first SIGTERM or SIGINT drains all processes, a second one kills them. SIGHUP is passed on.
    A process that ends is started again after a wait that grows up to 30 s; one that ends before it
    was ever ready ends all, because its configuration does not work.
    """
    check_shareable(config, count)
    processes = [
        _Process(variables_of(config, number), arguments) for number in range(1, count + 1)
    ]
    return trio.run(_run_all, processes)


async def _run_all(processes: Sequence["_Process"]) -> int:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:
            stopping = trio.Event()
            killed_by = 0

            async def keep(process: "_Process") -> None:
                await process.keep_running(stopping)
                # Asked to stop, or unable to start.
                _stop(processes, stopping)

            async def pass_on() -> None:
                nonlocal killed_by
                async for number in signals:
                    if number == signal.SIGHUP:
                        for each in processes:
                            each.send(signal.SIGHUP)
                    elif not stopping.is_set():
                        _stop(processes, stopping)
                    else:
                        killed_by = number
                        for each in processes:
                            each.send(signal.SIGKILL)

            nursery.start_soon(pass_on)
            async with trio.open_nursery() as running:
                for each in processes:
                    running.start_soon(keep, each)
            nursery.cancel_scope.cancel()
    if killed_by:
        return 128 + killed_by
    return next((each.exit_code for each in processes if each.exit_code), 0)


def _stop(processes: Sequence["_Process"], stopping: trio.Event) -> None:
    if not stopping.is_set():
        stopping.set()
        for each in processes:
            each.send(signal.SIGTERM)


class _Process:
    """One of the processes, which is started again when it ends."""

    def __init__(self, variables: Mapping[str, str], arguments: Sequence[str]) -> None:
        self.exit_code = 0
        """As a shell reports it: 128 + n after signal n."""
        self._variables = variables
        self._command = [sys.executable, "-m", "hermes_actors", "node", *arguments]
        self._running: subprocess.Popen[bytes] | None = None
        self._is_ready = False
        self._was_ready = False

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs. SIGHUP would end a process that is only starting."""
        if self._running is not None and (self._is_ready or number != signal.SIGHUP):
            self._running.send_signal(number)

    async def keep_running(self, stopping: trio.Event) -> None:
        """Run it until `stopping` is set and it has ended, or until it ends without having been
        ready once.
        """
        name = self._variables["HERMES_NODE"]
        backoff = Backoff(system_rng(), _FIRST_S, _WAIT_MAX_S)
        while not stopping.is_set():
            started_s = trio.current_time()
            await self._run(stopping)
            if stopping.is_set() or not self._was_ready:
                return
            if trio.current_time() - started_s > _STEADY_S:
                backoff.reset()
            wait_s = backoff.next_s()
            _logger.error(
                "%s ended with exit code %d; it is started again in %.1f s",
                name,
                self.exit_code,
                wait_s,
            )
            with trio.move_on_after(wait_s):
                await stopping.wait()

    def _start(self) -> "subprocess.Popen[bytes]":
        # In another session, because Ctrl-C in a terminal must reach only the parent, which passes
        # it on. Not in a thread, whose end the system would take for that of the parent.
        return subprocess.Popen(  # noqa: S603 -- this program
            self._command,
            env={**os.environ, **self._variables},
            stdout=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 -- one system call, no lock
        )

    async def _run(self, stopping: trio.Event) -> None:
        process = self._start()
        self._running, self._is_ready = process, False
        if stopping.is_set():
            process.terminate()
        assert process.stdout is not None, "it is a pipe"
        with process.stdout as output:
            # It prints one line, when it is ready.
            while line := await trio.to_thread.run_sync(output.readline):
                self._is_ready = self._was_ready = True
                sys.stdout.write(line.decode(errors="replace"))
                sys.stdout.flush()
        code = await trio.to_thread.run_sync(process.wait)
        self._running = None
        self.exit_code = code if code >= 0 else 128 - code


def _end_with_parent() -> None:
    """Let the system drain this process if its parent is killed. Otherwise it would keep receiving
    part of the connections. Linux only; elsewhere nothing happens.
    """
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def arguments_of(config: Path | None, *, prints_json: bool, is_verbose: bool) -> list[str]:
    """The arguments of each process."""
    found = [] if config is None else ["--config", str(config)]
    return [*found, *["--json"] * prints_json, *["--verbose"] * is_verbose]
