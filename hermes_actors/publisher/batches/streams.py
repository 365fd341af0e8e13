"""The batch streams of one node: who may open one, and their end."""

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import HermesError, Refused, Unavailable
from hermes_actors.publisher.answers import Answer
from hermes_actors.publisher.batches.forms import form_of
from hermes_actors.publisher.batches.stream import BatchStream, Bounds
from hermes_actors.publisher.demands import Head
from hermes_actors.publisher.gateway import Gateway
from hermes_actors.publisher.pending import Route


class Streams:
    """The streams that are open, and the bounds that they share."""

    def __init__(self, config: FrontendConfig, gateway: Gateway) -> None:
        self._gateway = gateway
        self._config = config
        self.bounds = Bounds(config)
        self.idle_s = config.batch_idle_timeout_ms / 1_000
        self._open: dict[BatchStream, None] = {}

    def __len__(self) -> int:
        """How many streams are open."""
        return len(self._open)

    def open(self, topic: str, key: bytes | None, head: Head) -> BatchStream | Answer:
        """Check what the headers say: the answer at once, or a stream that wants its body."""
        route = self._gateway.admit_batch(topic, head)
        if isinstance(route, Answer):
            return route
        try:
            stream = self._stream(route, key, head)
        except HermesError as error:
            return self._gateway.refuse(error, route, closes=True)
        self._open[stream] = None
        route.tally.in_flight += 1
        return stream

    def end_all(self) -> None:
        """The node is about to end: streams read no further, and answer what they have read."""
        error = Unavailable(
            "The server is shutting down: lines after this were not read; send them again, to "
            "another node"
        )
        for stream in list(self._open):
            stream.stop(error)

    def _stream(self, route: Route, key: bytes | None, head: Head) -> BatchStream:
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
                f"Content-Encoding {coding} is not read: a batch is taken apart; send it as it is",
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
            common,
            demands.pick,
            takes_events=self._config.cloud_events,
        )
        return BatchStream(
            self._gateway, self.bounds, route, form, key, head.account, common, self._closed
        )

    def _closed(self, stream: BatchStream) -> None:
        del self._open[stream]
        stream.route.tally.in_flight -= 1
