"""Hands the messages of a batch over to their topic's producer."""

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import HermesError, Refused
from hermes_actors.model.message import Message, trace_of
from hermes_actors.model.messages import MessageRun
from hermes_actors.model.partitioner import partition_of
from hermes_actors.publisher.answers import too_long_for_topic
from hermes_actors.publisher.batches.forms import Parcel
from hermes_actors.publisher.batches.slices import Slice
from hermes_actors.publisher.gateway import Gateway
from hermes_actors.publisher.pending import Pending, Route
from hermes_actors.schema.loop_limits import UNITS_MAX
from hermes_actors.schema.validation import BodyHead, Checked
from hermes_actors.security.account import Account

_SLICE_MESSAGES_MAX = 1_000
"""Limited so that the first answers go out while the rest of a piece is still parsed."""
_TOO_COSTLY = Refused(
    "Message is too large, or its topic's schema too costly, to be checked within a batch; "
    "publish it by itself"
)


class BatchRequest(Struct, frozen=True):
    """The head of a batch. `key` is for messages that have none, `common` is the template for all
    messages, and `body_head` says how to read their bodies.
    """

    route: Route
    key: bytes | None
    account: Account | None
    common: Message
    body_head: BodyHead


class Slicing:
    """Cuts the messages of one batch into slices and hands them over. `stop` is called with the
    reason if the batch has to end.
    """

    def __init__(
        self,
        request: BatchRequest,
        config: FrontendConfig,
        gateway: Gateway,
        stop: Callable[[HermesError], None],
    ) -> None:
        self._request = request
        self._route = request.route
        self._config = config
        self._gateway = gateway
        self._stop = stop
        self._trace = trace_of(request.common)

    def count_of_slice(self, parcel: Parcel) -> int:
        """How many messages from the parcel's start to send together."""
        count = min(len(parcel.bodies), self._config.batch_records_max, _SLICE_MESSAGES_MAX)
        while count > 1 and parcel.size_of_first(count) > self._config.batch_bytes_max:
            count //= 2
        return self._affordable(parcel, count)

    def _affordable(self, parcel: Parcel, count: int) -> int:
        """How many of these messages their schema may check in one turn; at least one."""
        validate, left = self._route.validate, UNITS_MAX
        if validate is not None:
            for at, body in enumerate(parcel.bodies[:count]):
                units = validate.units(body)
                # A message that is too costly is refused unchecked.
                left -= units if units <= UNITS_MAX else 0
                if left < 0 and at:
                    return at
        return count

    def send(self, parcel: Parcel, done: Callable[[], None]) -> Slice:
        """Hand these messages over; `done` is called when all have their outcomes, perhaps before
        this returns.
        """
        gateway, measures = self._gateway, self._route.measures
        count = len(parcel.bodies)
        measures.requested(count)
        made = gateway.ids.message_ids(count)
        if parcel.ids:
            made = [own or new for own, new in zip(parcel.ids, made, strict=True)]
        parcel.ids = made
        if parcel.keys is not None:
            parcel.keys = [self._request.key if key is None else key for key in parcel.keys]
        at_ms = gateway.clock.now_ms()
        self._refuse_large(parcel)
        self._refuse_unfit(parcel, at_ms)
        for error in parcel.refused.values():
            measures.answered(error.status, 1)
        part = Slice(parcel.ids, parcel.refused, done)
        ways: list[tuple[Sequence[int] | None, Parcel]] = [(None, parcel)]
        if parcel.keys is not None or parcel.refused:
            ways = [(places, parcel.at(places)) for places in self._places(parcel)]
        self._hand_over(part, ways, at_ms)
        if not ways:
            done()
        return part

    def _hand_over(
        self, part: Slice, ways: list[tuple[Sequence[int] | None, Parcel]], at_ms: int
    ) -> None:
        """Give the messages to their topic's producer, grouped by partition."""
        gateway, route = self._gateway, self._route
        started_s = gateway.clock.monotonic_s()
        each: list[tuple[Pending, Sequence[Message]]] = []
        for places, parcel in ways:
            messages = self._messages(parcel, at_ms)
            first = messages[0]
            size = sum(map(len, parcel.bodies))
            pending = Pending(
                first.id,
                route,
                started_s,
                first.key,
                size,
                route.batch_limits,
                part.ended,
                count=len(messages),
                trace=self._trace,
            )
            part.parts.append((pending, places))
            each.append((pending, messages))
        part.left = len(each)
        gateway.begin(route, [pending for pending, _ in each])
        for pending, messages in each:
            end = gateway.hand_over_batch(self._request.account, pending, messages)
            if end is not None:
                self._stop(end)

    def _refuse_large(self, parcel: Parcel) -> None:
        """Refuse messages above the topic's size limit, if that limit is enforced."""
        if self._config.force_topic_max_message_size:
            topic = self._route.topic
            for at, body in enumerate(parcel.bodies):
                if len(body) > topic.max_message_size:
                    parcel.refused[at] = too_long_for_topic(len(body), topic)

    def _refuse_unfit(self, parcel: Parcel, at_ms: int) -> None:
        """Refuse messages that do not fit the topic's schema, and those too costly to check,
        because the rest of the batch must not wait for one message.

        A message that fits is replaced by the form in which it is stored.
        """
        validate = self._route.validate
        if validate is None:
            return
        grown_bytes = 0
        for at, message in enumerate(self._messages(parcel, at_ms)):
            if at in parcel.refused:
                continue
            outcome: Checked = _TOO_COSTLY
            if validate.units(message.body) <= UNITS_MAX:
                outcome = validate.check(message, self._request.body_head)
            if isinstance(outcome, HermesError):
                parcel.refused[at] = outcome
            elif outcome is not message:
                grown_bytes += max(0, len(outcome.body) - len(message.body))
                if grown_bytes > self._config.batch_bytes_max:
                    # The defaults that a schema fills in may be many times what was sent.
                    parcel.refused[at] = _TOO_COSTLY
                    continue
                if parcel.models is None:
                    parcel.models = [self._request.common] * len(parcel.bodies)
                parcel.bodies[at], parcel.models[at] = outcome.body, outcome

    def _messages(self, parcel: Parcel, at_ms: int) -> Sequence[Message]:
        ids, bodies, models = parcel.ids, parcel.bodies, parcel.models
        if models is None:
            model = replace(self._request.common, published_at_ms=at_ms)
            keys = self._request.key if parcel.keys is None else parcel.keys
            return MessageRun(ids, bodies, keys, model)
        of_each = parcel.keys or [self._request.key] * len(ids)
        return [
            replace(model, id=own.decode(), body=body, key=key, published_at_ms=at_ms)
            for model, own, body, key in zip(models, ids, bodies, of_each, strict=True)
        ]

    def _places(self, parcel: Parcel) -> list[list[int]]:
        """The positions of the messages that are not refused, grouped by partition."""
        refused, keys, partitions = parcel.refused, parcel.keys, self._route.partitions
        if self._route.topic.fallback_to_remote_datacenter_enabled:
            # Another datacentre may have a different number of partitions, so group by key.
            partitions = 0
        places: dict[int | bytes | None, list[int]] = {}
        for at in range(len(parcel.bodies)):
            if at not in refused:
                key = keys[at] if keys else self._request.key
                where = partition_of(key, partitions) if partitions and key is not None else key
                places.setdefault(where, []).append(at)
        return list(places.values())
