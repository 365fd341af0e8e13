"""What the publish benchmark counts is what happened: quantiles, arrivals, stalls, statuses."""

import os
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice, pairwise

import pytest
from hpack import Encoder
from hypothesis import given
from hypothesis import strategies as st

from publishing.arrivals import constant, poisson
from publishing.http2 import status_of
from publishing.latencies import Latencies
from publishing.load import Load, OpenLoad, Target, run
from publishing.messages import made_up
from publishing.plot import scale_of

STALL_S = 0.4


class StallingHandler(BaseHTTPRequestHandler):
    """Answers 201, but once, in the middle of the measured second, nobody for a while."""

    protocol_version = "HTTP/1.1"
    answers_before_stall = 0
    resumed = threading.Event()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).answers_before_stall -= 1
        if self.answers_before_stall == 0:
            threading.Event().wait(STALL_S)
            self.resumed.set()
        elif self.answers_before_stall < 0:
            self.resumed.wait()
        self.send_response_only(201)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def stalling_port() -> Iterator[int]:
    StallingHandler.resumed.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), StallingHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def target(port: int) -> Target:
    return Target(port, os.getpid(), "http1", made_up(100), 1)


@pytest.mark.live
def test_an_open_loop_charges_a_stall_to_all_that_was_due_in_it(stalling_port: int) -> None:
    # 100 messages/s: 70 to warm up, 100 measured, of which the stall holds about 40.
    StallingHandler.answers_before_stall = 110
    row = run(OpenLoad(target(stalling_port), 2, 1.0, 100.0, "constant"))
    assert row["errors"] == {}
    assert row["unanswered"] == 0
    assert row["max_ms"] >= STALL_S * 1_000 * 0.9
    # A closed loop would have charged two messages, one for each connection.
    assert row["p99_ms"] > STALL_S * 1_000 * 0.75


@pytest.mark.live
def test_a_closed_loop_sends_the_next_message_when_the_last_is_answered(
    stalling_port: int,
) -> None:
    StallingHandler.answers_before_stall = -1
    StallingHandler.resumed.set()
    row = run(Load(target(stalling_port), 2, 0.3))
    assert row["messages_per_s"] > 0
    assert row["errors"] == {}


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 5)), min_size=1))
def test_a_quantile_is_a_latency_that_this_part_did_not_exceed(
    groups: list[tuple[float, int]],
) -> None:
    latencies = Latencies()
    for seconds, count in groups:
        latencies.record(seconds, count)
    each = sorted(seconds for seconds, count in groups for _ in range(count))
    for quantile in (0.5, 0.99, 0.999, 1.0):
        (value_ms,) = latencies.quantiles_ms(quantile)
        assert value_ms is not None
        assert sum(seconds * 1_000 <= value_ms for seconds in each) >= quantile * len(each) - 1e-6
        below = [seconds for seconds in each if seconds * 1_000 < value_ms]
        assert len(below) < quantile * len(each) + 1e-6


def test_no_latency_has_no_quantile() -> None:
    assert Latencies().summary() == dict.fromkeys(("p50_ms", "p99_ms", "p999_ms", "max_ms"))


def test_arrivals_keep_the_rate_whatever_their_spacing() -> None:
    assert list(islice(constant(4.0, 10.0), 4)) == [10.0, 10.25, 10.5, 10.75]
    times = list(islice(poisson(1_000.0, 10.0, random.Random(7)), 10_000))
    assert times == sorted(times)
    assert times[-1] - 10.0 == pytest.approx(10.0, rel=0.05)
    gaps = [late - early for early, late in pairwise(times)]
    # The spread of exponential gaps is their mean.
    assert (sum((gap - 0.001) ** 2 for gap in gaps) / len(gaps)) ** 0.5 == pytest.approx(
        0.001, rel=0.1
    )


@pytest.mark.parametrize("status", [200, 201, 202, 400, 404, 429, 500, 503])
@pytest.mark.parametrize("has_huffman", [False, True])
def test_a_status_is_read_from_a_header_block_without_a_table(
    status: int, has_huffman: bool
) -> None:
    encoder = Encoder()
    encoder.header_table_size = 0
    fields = [(":status", str(status)), ("hermes-message-id", "0" * 36)]
    assert status_of(encoder.encode(fields, huffman=has_huffman)) == status


def test_a_header_block_that_does_not_begin_with_a_status_is_refused() -> None:
    with pytest.raises(ValueError, match="status"):
        status_of(b"\x41\x01a")


@pytest.mark.parametrize("size", [14, 100, 1_024])
def test_a_made_up_message_has_the_size_asked_for(size: int) -> None:
    assert {len(body) for body in made_up(size).bodies} == {size}


@given(st.lists(st.floats(0.001, 1e6), min_size=1))
def test_an_axis_holds_all_its_values_in_order(values: list[float]) -> None:
    scale = scale_of(values, 0.0, 1_000.0)
    assert scale.low <= min(values) * (1 + 1e-6)
    assert scale.high >= max(values) * (1 - 1e-6)
    assert scale.ticks()
    places = [scale.at(value) for value in sorted(values)]
    assert places == sorted(places)
    assert all(0 <= place <= 1_000 for place in places)
