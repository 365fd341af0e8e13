"""The open batches of one node, and the bounds that they share."""

from msgspec.structs import replace

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import HermesError, Refused, Unavailable
from hermes_actors.publisher.answers import Answer
from hermes_actors.publisher.batches.exchange import BatchExchange
from hermes_actors.publisher.batches.forms import Form, form_of
from hermes_actors.publisher.batches.room import Room
from hermes_actors.publisher.batches.slicing import BatchRequest
from hermes_actors.publisher.demands import Head
from hermes_actors.publisher.edges.edge import Edge, Line
from hermes_actors.publisher.gateway import Gateway
from hermes_actors.publisher.pending import Route

_APPENDS_A_TOPIC = 2
"""The appends that batches may have under way for a topic: one in flight and one ready."""


class Batches:
    """Begins batches, and ends all of them when the node ends."""

    def __init__(self, config: FrontendConfig, gateway: Gateway) -> None:
        self._gateway = gateway
        self._config = config
        self.room = Room(
            _APPENDS_A_TOPIC * config.batch_records_max, config.batch_in_flight_bytes_max
        )
        self._open: dict[BatchExchange, None] = {}

    def __len__(self) -> int:
        """The number of open batches."""
        return len(self._open)

    def begin(
        self, topic: str, key: bytes | None, head: Head, line: Line, edge: Edge
    ) -> BatchExchange | Answer:
        """Check the headers. Returns a batch that waits for its body, or an answer that
        refuses it.
        """
        gateway = self._gateway
        route = gateway.admit_batch(topic, head)
        if isinstance(route, Answer):
            return route
        try:
            request, form = self._request(route, key, head)
        except HermesError as error:
            return gateway.refuse(error, route, closes=True)
        batch = BatchExchange(request, form, line, edge, gateway, self.room, self._closed)
        self._open[batch] = None
        route.drain.in_flight += 1
        return batch

    def end_all(self) -> None:
        """End all batches because the node is shutting down: their bodies are not read further, and
        the messages read so far are answered.
        """
        error = Unavailable(
            "The server is shutting down: lines after this were not read; send them again, to "
            "another node"
        )
        for batch in list(self._open):
            batch.stop(error)

    def _request(self, route: Route, key: bytes | None, head: Head) -> tuple[BatchRequest, Form]:
        if head.get("idempotency-key") is not None:
            raise Refused(
                "Idempotency-Key is for one message; in a batch give each an id, as a line of "
                "application/vnd.hermes.messages+ndjson"
            )
        if head.get("hermes-replay-id") is not None:
            raise Refused("Hermes-Replay-Id is for one message; send each in a request of its own")
        coding = head.get("content-encoding") or "identity"
        if coding.strip().lower() != "identity":
            raise Refused(
                f"Content-Encoding {coding} is not supported for a batch; send the body "
                "uncompressed",
                status=415,
            )
        if len(self._open) >= self._config.batch_streams_max:
            error = Unavailable(
                f"{len(self._open)} batches are being published on this node; try again later"
            )
            error.headers = (("retry-after", "1"),)
            raise error
        demands = self._gateway.demands
        common = demands.common(head)
        form = form_of(
            head.get("content-type"),
            self._config.body_bytes_max,
            self._config.header_bytes_max,
            common,
            demands.pick,
            takes_events=self._config.cloud_events,
        )
        # Each message of a batch is JSON, whatever form the batch has.
        body_head = replace(head.body_head, content_type="application/json")
        return BatchRequest(route, key, head.account, common, body_head), form

    def _closed(self, batch: BatchExchange) -> None:
        del self._open[batch]
        batch.route.drain.in_flight -= 1
