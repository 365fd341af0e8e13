"""The schemas of an external registry, as a node's publishers and consumers look them up."""

import logging
import random
from collections.abc import Callable, Mapping

import trio

from hermes_actors.config.schema import SchemaConfig
from hermes_actors.metadata.catalog import Catalog
from hermes_actors.model.schema import Schema
from hermes_actors.runtime.clock import Clock
from hermes_actors.schema.client import BadAnswer, RegistryAway, RegistryClient
from hermes_actors.schema.known import KnownLimits, KnownSchemas, Lookup
from hermes_actors.schema.source import SchemaVersion
from hermes_actors.telemetry.metrics import Metrics, meanings

SCHEMAS = meanings(
    "hermes_schema",
    registry_requests=("requests", "Requests to the external schema registry"),
    registry_failures=("requests", "Requests to it that had no usable answer"),
    registry_oldest_answer_seconds=("seconds", "How old the oldest answer is that is believed"),
    registry_is_away=("0 or 1", "Whether it cannot be asked now"),
)

_SWEEP_INTERVAL_S = 10.0
_logger = logging.getLogger(__name__)


class ExternalSchemas:
    """The schemas of an external registry, as they are known; `run` has asked what is not.

    The catalog's versions of a subject are those that a management node has registered there. Its
    texts are none of this registry's; they count for ids that this one does not have, of messages
    stored before. `listeners` are told the topics of which something else is known than before.
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
        """Why the registry cannot be asked now; "" while it answers."""
        return self._known.trouble

    def versions_of(self, subject: str) -> Mapping[int, SchemaVersion]:
        """The versions of a subject that are known now, by number, oldest first."""
        announced = self._catalog.subjects.get(subject, {})
        versions = self._known.versions_of(subject, announced, self._now_s())
        self._woken.set()
        return versions

    def lack(self, subject: str) -> str:
        """Why versions of a subject that it has, or must have, cannot be used; else ""."""
        return self._known.lack(subject, self._now_s())

    def doubt(self, subject: str, version: int) -> str:
        """Why a version of a subject (0: any) that is not known may be there all the same."""
        return self._known.doubt(subject, version)

    def by_id(self, schema_id: int) -> Schema | None:
        """The schema with this id, if it is known now."""
        schema = self._known.by_id(schema_id, self._now_s())
        self._woken.set()
        if schema is None and self._known.is_missing(schema_id):
            return self._catalog.schemas.get(schema_id)
        return schema

    def ask(self, subject: str, done: Callable[[], None]) -> None:
        """Have the subject's versions looked up, once a second at most; `done` is called once the
        registry has answered or could not, at once when it is not asked now.
        """
        if self._known.ask(subject, done, self._now_s()):
            self._woken.set()
        else:
            done()

    async def run(self, stop: trio.Event) -> None:
        """Ask what is to be asked, until asked to stop."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ask_all, nursery)
            nursery.start_soon(self._sweep)
            await stop.wait()
            nursery.cancel_scope.cancel()

    async def _ask_all(self, nursery: trio.Nursery) -> None:
        while True:
            self._woken = trio.Event()
            while (lookup := self._known.next(self._now_s())) is not None:
                nursery.start_soon(self._look_up, lookup)
            with trio.move_on_after(max(0.0, self._known.due_s() - self._now_s())):
                await self._woken.wait()

    async def _look_up(self, lookup: Lookup) -> None:
        subject = lookup.subject
        changed = False
        waiting: list[Callable[[], None]] = []
        answered = False
        try:
            if subject:
                known = self._known.held(subject)
                listed = await self._client.look_up(subject, known)
                changed, waiting = self._known.listed(subject, listed, self._now_s())
            else:
                schema = await self._client.by_id(lookup.schema_id)
                self._known.found(lookup.schema_id, schema, self._now_s())
            answered = True
            self._complain("")
        except (RegistryAway, BadAnswer, OSError) as error:
            is_away = not isinstance(error, BadAnswer)
            reason = str(error)
            waiting = self._known.failed(lookup, reason, self._now_s(), is_away=is_away)
            answered = True
            self._complain(reason if is_away else f"{self._client.subject(subject)}: {reason}")
        finally:
            if not answered:
                # Cancelled: who starts again begins with nothing under way.
                waiting = self._known.failed(lookup, "stopped", self._now_s(), is_away=False)
            self._woken.set()
        if changed:
            for listener in self.listeners:
                listener(subject)
        for done in waiting:
            done()

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(_SWEEP_INTERVAL_S)
            for subject in self._known.sweep(self._catalog.topics.__contains__, self._now_s()):
                for listener in self.listeners:
                    listener(subject)

    def _complain(self, reason: str) -> None:
        if reason and reason != self._complaint:
            _logger.error("schema registry: %s; known schemas stay in use", reason)
        elif self._complaint and not reason:
            _logger.warning("schema registry: it answers again")
        self._complaint = reason
