"""The HTTP/1.1 edge under hostile bytes, compared with h11: what h11 refuses, the edge must refuse.

    python -m tests.publisher.hostile_run [COUNT] [SEED]

Each input is read by h11, by the edge's reader, and by a whole connection over a gateway; `Verdict`
compares them.
"""

import random
import re
import resource
import sys
import time  # noqa: TID251 -- says how long the run took
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import h11

from hermes_actors.config import FrontendConfig
from hermes_actors.log.base import Stored
from hermes_actors.model.names import TopicName
from hermes_actors.model.topic import Ack, PublishingAuth
from hermes_actors.publisher.batches.node import Batches
from hermes_actors.publisher.deadlines import Deadlines
from hermes_actors.publisher.drain import Drain
from hermes_actors.publisher.edges.http1.connection import Http1Connection
from hermes_actors.publisher.edges.http1.heads import Heads, Malformed
from hermes_actors.publisher.edges.http1.reader import END, RequestReader
from hermes_actors.publisher.edges.publishing import PublishEdge
from hermes_actors.publisher.edges.request import Request
from hermes_actors.publisher.frontend import Frontend
from hermes_actors.publisher.gateway import Gateway
from hermes_actors.publisher.measures import FrontendMeasures
from hermes_actors.publisher.pending import Limits, Pending, Route
from hermes_actors.publisher.status import Pages
from hermes_actors.runtime.clock import SystemClock, seeded_ids
from hermes_actors.telemetry.metrics import Metrics
from tests.publisher.hostile_bytes import an_input, cut
from tests.values import a_topic

CONFIG = FrontendConfig(
    header_bytes_max=1_024, url_bytes_max=256, head_timeout_ms=1_000, body_bytes_max=4_096
)

Seen = tuple[list[tuple[bytes, bytes]], bool]
"""Method and body of each complete request, and whether the rest is refused."""


def by_h11(pieces: list[bytes]) -> Seen:
    """What h11 reads as a server that answers everything."""
    heads = Heads(CONFIG)
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=heads.bytes_max)
    seen: list[tuple[bytes, bytes]] = []
    method, body = b"", b""
    for piece in pieces:
        server.receive_data(piece)
        while True:
            try:
                event = server.next_event()
            except h11.RemoteProtocolError:
                return seen, True
            if event is h11.NEED_DATA:
                break
            if event is h11.PAUSED:
                if server.our_state is h11.SEND_BODY or server.our_state is h11.SEND_RESPONSE:
                    server.send(h11.Response(status_code=404, headers=[("Content-Length", "0")]))
                    server.send(h11.EndOfMessage())
                if server.our_state is not h11.DONE or server.their_state is not h11.DONE:
                    return seen, False
                server.start_next_cycle()
            elif isinstance(event, h11.Request):
                method, body = event.method, b""
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                seen.append((method, body))
                if server.our_state is not h11.SEND_RESPONSE:
                    return seen, False
                server.send(h11.Response(status_code=404, headers=[("Content-Length", "0")]))
                server.send(h11.EndOfMessage())
                if server.our_state is not h11.DONE:
                    return seen, False
                server.start_next_cycle()
    return seen, False


def by_reader(heads: Heads, pieces: list[bytes]) -> Seen:
    """What the edge's reader reads."""
    reader = RequestReader(heads)
    seen: list[tuple[bytes, bytes]] = []
    method, body, keeps_alive = b"", b"", True
    for piece in pieces:
        reader.receive(piece)
        while True:
            try:
                event = reader.next()
            except Malformed:
                return seen, True
            if event is None:
                break
            if isinstance(event, Request):
                if event.refusal is not None:
                    return seen, True
                method, keeps_alive, body = event.method.encode(), event.keeps_alive, b""
                whole = reader.whole_body()
                if whole is None:
                    continue
                body = whole
            elif event is not END:
                body += event  # type: ignore[operator]
                continue
            seen.append((method, body))
            if not keeps_alive:
                return seen, False
    return seen, False


class StillClock(SystemClock):
    """A clock that stands still."""

    def now_ms(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        return 0.0


class Target:
    """A gateway whose log stores everything, at once or later."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.rng = random.Random(1)
        self.waiting: list[Pending] = []
        self.calls: list = []
        metrics = Metrics("hermes_frontend")
        drain = Drain(initial_wait_ms=0, drain_ms=0)
        drain.open()
        measures = FrontendMeasures(metrics, "dc1", lambda: drain.in_flight)
        topic = a_topic(auth=PublishingAuth(unauthenticated_access_enabled=True))
        deadlines = Deadlines(self.clock)
        limits = Limits(65, 65, 65)
        deadlines.expect(limits)
        self.route = Route(
            "shop.orders",
            "shop.orders",
            topic,
            self,  # type: ignore[arg-type]
            limits,
            measures.topic(TopicName.parse("shop.orders"), Ack.LEADER),
            drain,
            "producer",
        )
        self.gateway = Gateway(
            CONFIG,
            {"shop.orders": self.route},
            drain,
            deadlines,
            measures,
            self.clock,
            seeded_ids(random.Random(2)),
        )
        self.drain = drain

        async def nothing() -> bytes:
            return b""

        batches = Batches(CONFIG, self.gateway)
        frontend = SimpleNamespace(
            gateway=self.gateway, batches=batches, pages=Pages(drain, nothing), config=CONFIG
        )
        self.edge = PublishEdge(cast("Frontend", frontend), self)
        self.edge.tick(0.0, 0)

    def tell(self, pending: Pending) -> None:
        """Stands for the producer's mailbox."""
        self.waiting.append(pending)
        if self.rng.random() < 0.5:
            self.store()

    def store(self) -> None:
        """Store everything that waits."""
        waiting, self.waiting = self.waiting, []
        for pending in waiting:
            pending.sent()
            pending.conclude([STORED] * pending.count)

    def soon(self, callback) -> None:
        self.calls.append(callback)

    def spawn(self, task, on_failure):
        task.close()
        return lambda: None


STORED = Stored(0)


class Client:
    """A wire that keeps what is written."""

    def __init__(self, target: Target) -> None:
        self.written = b""
        self.is_closed = self.has_sent_all = False
        self.connection = Http1Connection(target.edge, self)

    def write(self, data: bytes) -> None:
        assert not self.is_closed, "an answer after the end"
        assert not self.has_sent_all, "an answer after the last one"
        self.written += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.has_sent_all = True

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading

    def get_write_buffer_size(self) -> int:
        return 0


_STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ")


def by_connection(target: Target, pieces: list[bytes]) -> tuple[list[int], bool]:
    """The statuses that a whole connection answers, and whether it is closed."""
    client = Client(target)
    for piece in pieces:
        if client.is_closed:
            break
        client.connection.received(piece)
        settle(target)
    if not client.is_closed:
        client.connection.ended()
        settle(target)
    client.connection.lost()
    settle(target)
    assert target.drain.in_flight == 0, "a publication was forgotten"
    statuses = [int(status) for status in _STATUS.findall(client.written) if status != b"100"]
    return statuses, b"Connection: close" in client.written


def settle(target: Target) -> None:
    """Work until nothing is under way."""
    while target.waiting or target.calls:
        target.store()
        calls, target.calls = target.calls, []
        for call in calls:
            call()


class Verdict:
    """The result of a run: counts, and failing inputs."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.wrong: list[tuple[str, list[bytes]]] = []

    def judge(self, pieces: list[bytes], heads: Heads, target: Target) -> None:
        """Read one input in all three ways. Failures are: a request that h11 reads differently,
        bytes that only h11 refuses, and an answer too many or too few.
        """
        oracle, is_refused = by_h11(pieces)
        ours, do_we_refuse = by_reader(heads, pieces)
        self.counts["refused by h11"] += is_refused
        self.counts["refused"] += do_we_refuse
        self.counts["requests"] += len(ours)
        if ours != oracle[: len(ours)]:
            self.wrong.append(("another request than h11's", pieces))
        elif is_refused and not do_we_refuse and len(ours) == len(oracle):
            self.wrong.append(("not refused", pieces))
        statuses, says_last = by_connection(target, pieces)
        if (len(statuses) < len(ours) and not says_last) or len(statuses) > len(ours) + 1:
            self.wrong.append((f"{len(ours)} requests, answers {statuses}", pieces))


def run(count: int, seed: int) -> Verdict:
    """Judge that many inputs."""
    rng, verdict = random.Random(seed), Verdict()
    heads, target = Heads(CONFIG), Target()
    for number in range(count):
        pieces = cut(rng, an_input(rng))
        try:
            verdict.judge(pieces, heads, target)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is a crash
            verdict.wrong.append((repr(error), pieces))
            target = Target()
        if number == count // 10:
            verdict.counts["KiB after a tenth"] = memory_kib()
    verdict.counts["KiB at the end"] = memory_kib()
    return verdict


def memory_kib() -> int:
    """The maximum memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(arguments: list[str]) -> Iterator[str]:
    """Run, and report the result."""
    count = int(arguments[0]) if arguments else 1_000_000
    seed = int(arguments[1]) if len(arguments) > 1 else 1
    started_s = time.monotonic()
    verdict = run(count, seed)
    yield f"{count} inputs, seed {seed}, {time.monotonic() - started_s:.0f} s"
    yield from (f"{name}: {number}" for name, number in verdict.counts.items())
    yield f"wrong: {len(verdict.wrong)}"
    yield from map(repr, verdict.wrong[:20])


if __name__ == "__main__":
    for line in main(sys.argv[1:]):
        print(line)  # noqa: T201 -- a script
