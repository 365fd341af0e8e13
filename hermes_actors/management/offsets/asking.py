"""Queries the logs of all datacentres at once. A slow log does not delay the answers of others."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

import trio
from msgspec import Struct

from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.log.base import Log, LogUnavailable, UnknownTopic

ASK_TIMEOUT_S = 5.0

T = TypeVar("T")


class Answers(Struct, Generic[T], frozen=True):
    """The answers by datacentre, and the reason for each datacentre without an answer; sorted."""

    known: dict[str, T]
    silent: dict[str, str]

    def whole(self) -> dict[str, T]:
        """The answers by datacentre. Raises Unavailable if one did not answer."""
        if self.silent:
            raise Unavailable("; ".join(f"{dc}: {reason}" for dc, reason in self.silent.items()))
        return self.known


class Logs:
    """The logs of all datacentres. `clusters`: the names of datacentres as Hermes' clusters, if
    they differ.
    """

    def __init__(
        self, logs: Iterable[Log], clusters: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._by_dc = {log.dc: log for log in logs}
        self._clusters = clusters

    @property
    def datacenters(self) -> list[str]:
        """The names of the datacentres, sorted."""
        return sorted(self._by_dc)

    def cluster(self, dc: str) -> str:
        """The datacentre's name as a cluster in answers."""
        return self._clusters.get(dc, dc)

    def datacenter(self, name: str) -> str:
        """The datacentre with this name, as a cluster or as a datacentre. Raises Refused (404)."""
        for dc in self.datacenters:
            if name in (self.cluster(dc), dc):
                return dc
        known = ", ".join(map(self.cluster, self.datacenters))
        raise Refused(
            f"cluster: there is no datacentre {name}; there are {known}",
            ErrorCode.BROKERS_CLUSTER_NOT_FOUND_EXCEPTION,
        )

    async def ask(
        self,
        question: Callable[[Log], Awaitable[T]],
        datacenters: Iterable[str] | None = None,
        timeout_s: float = ASK_TIMEOUT_S,
    ) -> Answers[T]:
        """Ask the logs of these datacentres (None: all). Each has `timeout_s` to answer."""
        known: dict[str, T] = {}
        silent: dict[str, str] = {}

        async def ask_one(dc: str) -> None:
            try:
                with trio.fail_after(timeout_s):
                    known[dc] = await question(self._by_dc[dc])
            except LogUnavailable as error:
                silent[dc] = f"its log cannot be reached: {error.message}"
            except UnknownTopic:
                silent[dc] = "its log does not hold the topic yet"
            except trio.TooSlowError:
                silent[dc] = f"its log did not answer within {timeout_s:.0f} s"

        async with trio.open_nursery() as nursery:
            for dc in self.datacenters if datacenters is None else datacenters:
                nursery.start_soon(ask_one, dc)
        return Answers(dict(sorted(known.items())), dict(sorted(silent.items())))
