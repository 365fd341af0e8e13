"""What a publish asks for beside being stored: a key of its own, a CloudEvent, headers to go along.

Most publishes ask for none of it and never come here.
"""

import re
from collections.abc import Callable

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import HermesError
from hermes_actors.log.base import Stored
from hermes_actors.model.keyed_id import keyed_id
from hermes_actors.model.message import Headers
from hermes_actors.publisher.cloudevents import (
    VERSION_HEADER,
    event_in,
    event_of,
    is_structured,
)
from hermes_actors.publisher.head import Head
from hermes_actors.publisher.idempotency import Claim, KeyWindow, parse_key
from hermes_actors.publisher.propagation import Propagation
from hermes_actors.publisher.publication import Buffered, Extras, Publication, Replayed
from hermes_actors.runtime.clock import Clock

# W3C Trace Context, 3.2: what does not look like it is ignored, as the recommendation asks.
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


class Demands:
    """Reads them from a request's head, and again when its body has come."""

    def __init__(self, config: FrontendConfig, clock: Clock) -> None:
        self._now_s = clock.monotonic_s
        self._takes_events = config.cloud_events
        self._propagation = Propagation(config.propagation) if config.propagation.enabled else None
        self._window = KeyWindow(config.idempotency.keys_max, config.idempotency.window_ms / 1_000)
        self.reads_every_head = self._propagation is not None
        """True when also a plain head has something that is wanted."""
        self.replays = 0
        """How many publishes were answered again, and not stored again."""

    @property
    def keys(self) -> int:
        """How many keys are remembered now."""
        return len(self._window)

    def read(self, publication: Publication, head: Head) -> HermesError | None:
        """Note what the head asks for; why the publish is refused, None when it is not.

        Afterwards the publication must be settled, whatever comes of it.
        """
        extras = Extras()
        if self._propagation is not None:
            extras.propagated = self._propagation.pick(head.pairs())
        traceparent = head.get("traceparent")
        if traceparent is not None and _TRACEPARENT.fullmatch(traceparent):
            extras.traceparent = traceparent
        if not head.is_plain:
            try:
                self._read_special(publication, head, extras)
            except HermesError as error:
                return error
        publication.extras = extras
        return None

    def common(self, head: Head) -> Extras | None:
        """What the head of a batch says for all its messages; None for nothing."""
        extras = Extras()
        if self._propagation is not None:
            extras.propagated = self._propagation.pick(head.pairs())
        traceparent = head.get("traceparent")
        if traceparent is not None and _TRACEPARENT.fullmatch(traceparent):
            extras.traceparent = traceparent
        return None if extras == Extras() else extras

    def pick(self, pairs: list[tuple[str, str]]) -> Headers:
        """Which of a message's own headers travel with it."""
        return () if self._propagation is None else self._propagation.pick(pairs)

    def take(self, publication: Publication, body: bytes) -> bytes | None:
        """The message's body in this request's one; None when the publication was settled instead:
        it is refused, or its message is stored already.
        """
        extras = publication.extras
        assert extras is not None, "it asks for nothing"
        try:
            if extras.claim is not None:
                status = extras.claim.match(publication.key, body)
                if status:
                    self.replays += 1
                    publication.settle(Replayed(status))
                    return None
            if extras.is_event:
                event = event_in(body)
                extras.attributes = event.attributes
                if publication.key is None:
                    publication.key = event.key
                return event.body
        except HermesError as error:
            publication.settle(error)
            return None
        return body

    def _read_special(self, publication: Publication, head: Head, extras: Extras) -> None:
        """Raises HermesError."""
        if self._takes_events:
            extras.is_event = is_structured(head.get("content-type"))
            if not extras.is_event and head.get(VERSION_HEADER) is not None:
                event = event_of(head.pairs())
                extras.attributes = event.attributes
                if publication.key is None:
                    publication.key = event.key
        # Last, since from here on somebody must conclude it.
        value = head.get("idempotency-key")
        if value is not None:
            key = parse_key(value)
            claim = self._window.claim(publication.route.log_topic, key, publication.started_s)
            publication.id = keyed_id(publication.route.name, key)
            publication.notify = self._concluding(claim, publication.notify)
            extras.claim = claim

    def _concluding(
        self, claim: Claim, notify: Callable[[Publication], None]
    ) -> Callable[[Publication], None]:
        def conclude(publication: Publication) -> None:
            claim.conclude(_status(publication), self._now_s())
            notify(publication)

        return conclude


def _status(publication: Publication) -> int:
    """The success that it was answered with; 0 for anything else."""
    outcome = publication.outcome
    if isinstance(outcome, Stored):
        return 201
    return 202 if isinstance(outcome, Buffered) else 0
