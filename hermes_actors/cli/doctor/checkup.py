"""All checks of one node, side by side, each for a bounded time; nothing is made or changed.

In trio, as the guest of an asyncio host. The probes are thin: what a finding means is decided by
the pure functions beside them.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar, TypeVarTuple, Unpack

import trio

from hermes_actors.cli.doctor import disk
from hermes_actors.cli.doctor import kafka as kafka_verdicts
from hermes_actors.cli.doctor.clock import ClockSeen, judge_clocks, judge_files_clock
from hermes_actors.cli.doctor.diagnosis import Diagnosis, wrong
from hermes_actors.cli.doctor.files import CHECK as FILES
from hermes_actors.cli.doctor.files import judge_files
from hermes_actors.cli.doctor.ports import CHECK as PORTS
from hermes_actors.cli.doctor.ports import PortSeen, judge_port, look_at_port, running_pids
from hermes_actors.cli.doctor.reach import (
    REGISTRY,
    TELEMETRY,
    collectors,
    judge_collector,
    look_at_collector,
    look_at_registry,
)
from hermes_actors.cli.doctor.stored import (
    LOG,
    SPOOL,
    judge_absent,
    judge_log,
    judge_spool,
    look_at_log,
)
from hermes_actors.config import Config
from hermes_actors.config.ports import Port, ports
from hermes_actors.coordination import commands as coordination
from hermes_actors.errors import ConfigError, HermesError
from hermes_actors.fallback.spool.opening import spool_folder
from hermes_actors.fallback.spool.reading import read_spool
from hermes_actors.log.base import TopicSettings
from hermes_actors.log.kafka.survey import Stamp, Survey
from hermes_actors.metadata import commands as metadata
from hermes_actors.metadata import registry
from hermes_actors.runtime.clock import Clock
from hermes_actors.status import previews
from hermes_actors.status import record as status
from hermes_actors.telemetry.settings import telemetry_settings
from hermes_actors.tracking import events as tracking

T = TypeVar("T")
A = TypeVarTuple("A")

OWN_TOPICS: Mapping[str, TopicSettings] = {
    metadata.METADATA_TOPIC: registry.SETTINGS,
    coordination.COORDINATION_TOPIC: coordination.SETTINGS,
    status.STATUS_TOPIC: status.SETTINGS,
    previews.PREVIEW_TOPIC: previews.SETTINGS,
    tracking.TRACKING_TOPIC: tracking.SETTINGS,
}
"""The topics that nodes make for themselves, with what they make them with."""

_LISTEN_S = 1.5
"""A node reports once a second."""

Check = Callable[[], Awaitable[Iterable[Diagnosis]]]


class Checkup:
    """The checks of the node that a configuration describes, beside which it may run or not."""

    def __init__(
        self, config: Config, env: Mapping[str, str], clock: Clock, *, timeout_s: float
    ) -> None:
        self._config = config
        self._env = env
        self._clock = clock
        self._timeout_s = timeout_s
        # What the node's own port tells, on which other findings depend.
        self._main = PortSeen()
        self._main_known = trio.Event()

    async def run(self) -> list[Diagnosis]:
        """All findings, in the order of the checks."""
        config = self._config
        # By what is told when nothing was found in time.
        checks: list[tuple[str, str, Check]] = [
            (PORTS, "the node's ports", self._ports),
            (FILES, "the files that the configuration names", self._files),
            *(
                (disk.CHECK, f"{each.setting}: {each.path}", partial(self._folder, each))
                for each in disk.folders(config)
            ),
            (disk.CHECK, "open files", self._open_files),
        ]
        if not config.kafka.clusters:
            checks.append((LOG, config.log.directory, self._log))
        if "frontend" in config.roles and config.spool.enabled:
            checks.append((SPOOL, str(spool_folder(config)), self._spool))
        checks += [
            (kafka_verdicts.CHECK, f"Kafka of {dc}", partial(self._kafka, dc))
            for dc in config.kafka.clusters
        ]
        checks.append((REGISTRY, "schema.urls", partial(look_at_registry, config)))
        checks.append((TELEMETRY, "OTLP", self._telemetry))
        found: list[list[Diagnosis]] = [[] for _ in checks]
        async with trio.open_nursery() as nursery:
            for place, check in zip(found, checks, strict=True):
                nursery.start_soon(self._one, place, *check)
        return [each for place in found for each in place]

    async def _one(self, place: list[Diagnosis], name: str, about: str, check: Check) -> None:
        with trio.move_on_after(self._timeout_s) as limit:
            try:
                place += await check()
            except HermesError as error:
                seen, _, way_out = error.message.partition("; ")
                place.append(wrong(name, about, seen, way_out))
            except OSError as error:
                what = f"{error.filename}: " if error.filename else ""
                seen = f"cannot be looked at: {what}{error.strerror or error}"
                place.append(wrong(name, about, seen, "see the rights of this user, and the disk"))
        if limit.cancelled_caught:
            place.append(
                wrong(
                    name,
                    about,
                    f"no answer within {self._timeout_s:g} s",
                    "see whether it hangs, or give more time by --timeout-s",
                )
            )

    async def _ports(self) -> Iterable[Diagnosis]:
        seen: dict[Port, PortSeen] = {}

        async def look(port: Port) -> None:
            seen[port] = await look_at_port(port, 0.5 * self._timeout_s)

        try:
            async with trio.open_nursery() as nursery:
                for port in ports(self._config):
                    nursery.start_soon(look, port)
            self._main = next(found for port, found in seen.items() if port.is_main)
        finally:
            self._main_known.set()
        return [
            judge_port(self._config, port, seen[port], self._main) for port in ports(self._config)
        ]

    async def _node_pids(self) -> set[int]:
        await self._main_known.wait()
        return running_pids(self._config, self._main)

    async def _files(self) -> Iterable[Diagnosis]:
        return await _in_thread(lambda: list(judge_files(self._config, self._clock)))

    async def _folder(self, folder: disk.Folder) -> Iterable[Diagnosis]:
        return [
            disk.judge_folder(folder, await _in_thread(disk.look_at_folder, folder, self._clock))
        ]

    async def _open_files(self) -> Iterable[Diagnosis]:
        limit = await _in_thread(disk.look_at_limit, await self._node_pids())
        return [disk.judge_limit(limit, disk.files_wanted(self._config))]

    async def _log(self) -> Iterable[Diagnosis]:
        directory = Path(self._config.log.directory)
        seen = await _in_thread(look_at_log, directory)
        written = await _in_thread(disk.newest_ms, directory)
        limit_ms = self._config.consumers.clock_skew_max_ms
        return [
            judge_log(seen, await self._node_pids()),
            judge_files_clock(f"log of {self._config.dc}", written, self._clock.now_ms(), limit_ms),
        ]

    async def _spool(self) -> Iterable[Diagnosis]:
        folder = spool_folder(self._config)
        if not folder.is_dir():
            return [judge_absent(SPOOL, str(folder), await self._node_pids())]
        content = await _in_thread(read_spool, folder)
        return judge_spool(content, await self._node_pids(), self._clock.now_ms())

    async def _kafka(self, dc: str) -> Iterable[Diagnosis]:
        config = self._config
        survey = Survey(
            dc,
            config.kafka.clusters[dc],
            config.kafka,
            self._clock,
            list(OWN_TOPICS),
            stamped=status.STATUS_TOPIC,
            listen_s=_LISTEN_S,
            request_timeout_ms=max(1, round(1_000 * self._timeout_s / 3)),
        )
        # What has been learned by then is told.
        with trio.move_on_after(0.9 * self._timeout_s):
            await survey.run()
        seen = survey.seen
        found = list(kafka_verdicts.judge_cluster(seen, config.kafka, OWN_TOPICS))
        if not seen.is_whole:
            about = f"Kafka of {dc}"
            text = f"does not answer all questions within {self._timeout_s:g} s"
            found.append(
                wrong(
                    kafka_verdicts.CHECK, about, text, "see the brokers, or take more --timeout-s"
                )
            )
        if seen.brokers and not seen.stamps_trouble:
            limit_ms = config.consumers.clock_skew_max_ms
            clocks = [each for stamp in seen.stamps if (each := _clock_seen(stamp)) is not None]
            found += judge_clocks(dc, clocks, self._clock.now_ms(), limit_ms)
        return found

    async def _telemetry(self) -> Iterable[Diagnosis]:
        found = collectors(telemetry_settings(self._env), self._env)
        # A node goes on without them, so one that hangs is no failure, and hides no other.
        timeout_s = 0.9 * self._timeout_s / max(1, len(found))
        return [judge_collector(each, await look_at_collector(each, timeout_s)) for each in found]


def broken_configuration(error: ConfigError) -> Diagnosis:
    """Without a configuration nothing else can be looked at."""
    seen, _, way_out = error.message.partition("; ")
    return wrong("config", "configuration", seen, way_out or "mend it; docs/configuration.md")


def _clock_seen(stamp: Stamp) -> ClockSeen | None:
    try:
        header = status.decode(stamp.stored.value).header
    except status.UndecodableStatus:
        return None
    return ClockSeen(header.node, header.written_at_ms, stamp.stored.timestamp_ms, stamp.arrived_ms)


async def _in_thread(look: Callable[[Unpack[A]], T], *args: *A) -> T:
    # A disk that hangs keeps its thread, not this command.
    return await trio.to_thread.run_sync(look, *args, abandon_on_cancel=True)
