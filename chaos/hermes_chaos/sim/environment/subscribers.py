"""Subscribers as HTTP/1.1 servers in virtual time: they succeed, fail, dawdle and hang up.

An endpoint's behaviour is drawn when a request is complete. While the nemesis sets its mood, most
draws follow that mood. Every behaviour has been seen in production somewhere.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import httptools
import msgspec
import trio
from msgspec import Struct

from hermes_chaos.sim.history.avro import as_published, read_avro
from hermes_chaos.sim.history.events import Answer, Delivery, History
from hermes_chaos.sim.history.trace import Trace
from hermes_chaos.sim.workload.plans import VISITS

_MOOD_RATE = 0.7


class Behaviour(StrEnum):
    """How a subscriber treats one request."""

    OK = "ok"
    ERROR = "500"
    BUSY = "503-retry-after"
    TOO_MANY = "429"
    REFUSES = "400"
    SILENT = "silent"  # processes, never answers
    SLOW = "slow"  # processes, and answers about when the sender's time-out ends
    CUT_BEFORE = "cut-before"  # closes the connection without processing
    CUT_AFTER = "cut-after"  # processes, then closes without an answer
    CLOSES = "closes"  # answers, and closes the kept-alive connection a moment later
    GONE = "410"  # is gone for good; as a mood only
    DOWN = "down"  # accepts no connections; as a mood only


FAULTS = tuple(each for each in Behaviour if each is not Behaviour.OK)
_OWN_FAULTS = tuple(each for each in FAULTS if each not in (Behaviour.GONE, Behaviour.DOWN))
DEATHS = (Behaviour.ERROR, Behaviour.CUT_BEFORE, Behaviour.DOWN)
"""The moods in which nothing is delivered."""

_PROCESSES = frozenset(
    (Behaviour.OK, Behaviour.SILENT, Behaviour.SLOW, Behaviour.CUT_AFTER, Behaviour.CLOSES)
)
_HEADS = {
    Behaviour.OK: b"HTTP/1.1 200 OK\r\n",
    Behaviour.SLOW: b"HTTP/1.1 204 No Content\r\n",
    Behaviour.CLOSES: b"HTTP/1.1 202 Accepted\r\n",
    Behaviour.ERROR: b"HTTP/1.1 500 Internal Server Error\r\n",
    Behaviour.BUSY: b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n",
    Behaviour.TOO_MANY: b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\n",
    Behaviour.REFUSES: b"HTTP/1.1 400 Bad Request\r\n",
    Behaviour.GONE: b"HTTP/1.1 410 Gone\r\n",
}


@dataclass(frozen=True)
class Plan:
    """A planned answer: pieces with the wait before each, and whether to close afterwards."""

    behaviour: Behaviour
    pieces: tuple[tuple[float, bytes], ...]
    closes_after_s: float | None


class Endpoint:
    """One subscriber, by its host name. `timeout_s` is how long its senders wait for an answer;
    `fault_rate` is the share of requests that fail by themselves.
    """

    def __init__(
        self,
        subscription: str,
        host: str,
        timeout_s: float,
        fault_rate: float,
        rng: random.Random,
        history: History,
        trace: Trace,
    ) -> None:
        self.subscription = subscription
        self.host = host
        self._timeout_s = timeout_s
        self._rng = rng
        self._history = history
        self._trace = trace
        self._own_fault_rate = fault_rate
        self._is_cold = True
        self._is_of_avro = subscription.startswith(f"{VISITS.name}$")
        self.mood = Behaviour.OK
        self.is_dead = False
        self.processed: dict[str, int] = {}

    @property
    def is_down(self) -> bool:
        """True while connections are refused."""
        return self.mood is Behaviour.DOWN

    def calm(self) -> None:
        """End the mood; a share of requests still fails."""
        self.mood = Behaviour.OK
        self.is_dead = False

    def heal(self) -> None:
        """Let every request succeed from now on."""
        self.calm()
        self._own_fault_rate = 0.0

    def receive(self, dc: str, messages: Sequence[tuple[str, bytes]]) -> Plan:
        """Handle a complete request, with one message or a batch; return the answer's plan."""
        behaviour = self._draw()
        is_processed = behaviour in _PROCESSES
        if behaviour is not Behaviour.OK:
            self._history.faults[f"subscriber {behaviour.value}"] += 1
        for message_id, body in messages:
            if is_processed:
                self.processed[message_id] = self.processed.get(message_id, 0) + 1
            self._trace.note(dc, f"push {self.subscription} {message_id} {behaviour.value}")
            got, version = as_published(body) if self._is_of_avro else (body, 0)
            self._history.tell(
                Delivery(dc, self.subscription, message_id, got, is_processed, version)
            )
        return self._plan(behaviour)

    def answered(self, dc: str, messages: Sequence[tuple[str, bytes]], status: int) -> None:
        """Report that the answer's head has reached the sender."""
        at_s = trio.current_time()
        for message_id, _ in messages:
            self._history.tell(Answer(dc, self.subscription, message_id, status, self.host, at_s))

    def _draw(self) -> Behaviour:
        rng = self._rng
        if self._is_cold:
            # So that every run has a retry to examine.
            self._is_cold = False
            return Behaviour.ERROR
        if self.mood not in (Behaviour.OK, Behaviour.DOWN) and (
            self.is_dead or rng.random() < _MOOD_RATE
        ):
            return self.mood
        if self._own_fault_rate and rng.random() < self._own_fault_rate:
            return rng.choice(_OWN_FAULTS)
        return Behaviour.OK

    def _plan(self, behaviour: Behaviour) -> Plan:
        rng = self._rng
        delay_s = rng.uniform(0.001, 0.02)
        if behaviour is Behaviour.SILENT:
            return Plan(behaviour, (), None)
        if behaviour in (Behaviour.CUT_BEFORE, Behaviour.CUT_AFTER):
            return Plan(behaviour, (), delay_s)
        if behaviour is Behaviour.SLOW:
            delay_s = self._timeout_s * rng.uniform(0.7, 1.3)
        answer = _HEADS[behaviour] + b"Content-Length: 2\r\n\r\n{}"
        closes_after_s = rng.uniform(0.0, 0.01) if behaviour is Behaviour.CLOSES else None
        if rng.random() < 0.2:
            at = rng.randrange(1, len(answer))
            pieces: tuple[tuple[float, bytes], ...] = (
                (delay_s, answer[:at]),
                (0.002, answer[at:]),
            )
        else:
            pieces = ((delay_s, answer),)
        return Plan(behaviour, pieces, closes_after_s)


class RequestParser:
    """The server side of a connection. Calls `on_request` with the messages of each request."""

    def __init__(self, on_request: Callable[[Sequence[tuple[str, bytes]]], None]) -> None:
        self._on_request = on_request
        self._parser = httptools.HttpRequestParser(self)
        self._message_id = ""
        self._schema_id = 0
        self._body = b""

    def feed(self, data: bytes) -> None:
        """Parse a client's bytes. Raises httptools.HttpParserError if our sender wrote an invalid
        request.
        """
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        """Start the next request."""
        self._message_id = ""
        self._schema_id = 0
        self._body = b""

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note the relevant headers."""
        if name.lower() == b"hermes-message-id":
            self._message_id = value.decode("latin-1")
        elif name.lower() == b"schema-id":
            self._schema_id = int(value)

    def on_body(self, body: bytes) -> None:
        """Collect a piece of the body."""
        self._body += body

    def on_message_complete(self) -> None:
        """Pass the request's messages to `on_request`; one in Avro as its JSON."""
        if self._message_id:
            written_with = self._schema_id
            body = read_avro(self._body, written_with) if written_with else self._body
            self._on_request([(self._message_id, body)])
        else:
            self._on_request(messages_of(self._body))


class _Metadata(Struct):
    id: str


class _Envelope(Struct):
    metadata: _Metadata
    message: msgspec.Raw


_envelopes = msgspec.json.Decoder(list[_Envelope]).decode


def messages_of(batch: bytes) -> list[tuple[str, bytes]]:
    """The ids and bodies of the messages in a batch of envelopes. Raises msgspec.DecodeError."""
    return [(each.metadata.id, bytes(each.message)) for each in _envelopes(batch)]
