"""Looks up schemas in an external registry, for a node's publishers and consumers."""

import logging
import random
from collections.abc import Callable, Mapping

import trio

from hermes_actors.config.schema import SchemaConfig
from hermes_actors.metadata.catalog import Catalog
from hermes_actors.model.schema import Schema
from hermes_actors.runtime.clock import Clock
from hermes_actors.schema.client import NoAnswer, RegistryAway, RegistryClient
from hermes_actors.schema.known import SWEEP_INTERVAL_S, KnownLimits, KnownSchemas, Wanted
from hermes_actors.schema.source import SchemaVersion
from hermes_actors.telemetry.metrics import Metrics, meanings

SCHEMAS = meanings(
    "hermes_schema",
    registry_requests=("requests", "Requests to the external schema registry"),
    registry_failures=("requests", "External registry requests without a usable answer"),
    registry_oldest_answer_seconds=("seconds", "Age of the oldest answer still in use"),
    registry_is_away=("0 or 1", "Whether the external schema registry cannot be reached"),
)

_logger = logging.getLogger(__name__)


class ExternalSchemas:
    """The schemas of an external registry; `run` fetches missing ones.

    The catalog holds the versions that management has registered there, without their texts. Texts
    in the catalog are used only for ids that the registry does not have: those of older messages.
    `listeners` get the names of topics whose schemas have changed.
    """

    def __init__(
        self,
        client: RegistryClient,
        config: SchemaConfig,
        catalog: Catalog,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._catalog = catalog
        self._now_s = clock.monotonic_s
        limits = KnownLimits(
            refresh_s=config.refresh_interval_ms / 1_000,
            expiry_s=config.expiry_ms / 1_000,
        )
        self._known = KnownSchemas(limits, rng)
        self._woken = trio.Event()
        self._complaint = ""
        self.listeners: list[Callable[[str], None]] = []
        self.metrics = Metrics("hermes_schema", meanings=SCHEMAS)
        self.metrics.total("registry_requests", lambda: client.requests)
        self.metrics.total("registry_failures", lambda: client.failures)
        self.metrics.gauge(
            "registry_oldest_answer_seconds", lambda: self._known.oldest_s(self._now_s())
        )
        self.metrics.gauge("registry_is_away", lambda: float(bool(self._known.trouble)))

    @property
    def trouble(self) -> str:
        """Why the registry cannot be asked now; empty string while it answers."""
        return self._known.trouble

    def versions_of(self, subject: str) -> Mapping[int, SchemaVersion]:
        """The known versions of a subject, by number, oldest first."""
        versions = self._known.versions_of(subject, self._catalog.subjects.get(subject, {}))
        self._woken.set()
        return versions

    def lack(self, subject: str) -> str:
        """Why versions that the subject has, or must have, cannot be used; otherwise empty."""
        return self._known.lack(subject)

    def doubt(self, subject: str, version: int) -> str:
        """Why an unknown version of a subject (0: any) may exist nevertheless; otherwise empty."""
        return self._known.doubt(subject, version)

    def by_id(self, schema_id: int) -> Schema | None:
        """The schema with this id, if it is known."""
        schema = self._known.by_id(schema_id, self._now_s())
        self._woken.set()
        if schema is None and self._known.is_missing(schema_id):
            return self._catalog.schemas.get(schema_id)
        return schema

    def ask(self, subject: str, done: Callable[[], None]) -> None:
        """Look the subject up, at most once a second. `done` is called after the answer, or
        immediately if the registry is not asked now.
        """
        if self._known.ask(subject, done, self._now_s()):
            self._woken.set()
        else:
            done()

    async def run(self, stop: trio.Event) -> None:
        """Send requests to the registry as needed, until asked to stop."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ask_all, nursery)
            nursery.start_soon(self._sweep)
            await stop.wait()
            nursery.cancel_scope.cancel()

    async def _ask_all(self, nursery: trio.Nursery) -> None:
        while True:
            self._woken = trio.Event()
            while (wanted := self._known.next(self._now_s())) is not None:
                nursery.start_soon(self._look_up, wanted)
            await self._woken.wait()

    async def _look_up(self, wanted: Wanted) -> None:
        known, is_news = self._known, False
        waiting: list[Callable[[], None]] = []
        reason, is_away = "stopped", False
        try:
            if isinstance(wanted, str):
                answer = await self._client.look_up(wanted, known.held(wanted))
                is_news, waiting = known.listed(wanted, answer, self._now_s())
            else:
                known.found(wanted, await self._client.by_id(wanted), self._now_s())
            reason = ""
        except NoAnswer as error:
            reason, is_away = error.reason, isinstance(error, RegistryAway)
        finally:
            if reason:
                waiting = known.failed(wanted, reason, self._now_s(), is_away=is_away)
            self._woken.set()
        self._complain(reason if is_away or not reason else f"{wanted}: {reason}")
        for listener in self.listeners if is_news else ():
            listener(str(wanted))
        for done in waiting:
            done()

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(SWEEP_INTERVAL_S)
            for subject in self._known.sweep(self._catalog.topics.__contains__, self._now_s()):
                for listener in self.listeners:
                    listener(subject)
            self._woken.set()

    def _complain(self, reason: str) -> None:
        if reason and reason != self._complaint:
            _logger.error("schema registry: %s; known schemas stay in use", reason)
        elif self._complaint and not reason:
            _logger.warning("schema registry: it answers again")
        self._complaint = reason
