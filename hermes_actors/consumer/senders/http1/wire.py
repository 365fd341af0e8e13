"""One HTTP/1.1 client connection without I/O: request bytes out, answer bytes in, one outcome.

The outcome is known when an answer's status is received; a later error in the body costs only the
connection. Bodies are counted and dropped, unless a witness keeps them. Uses no socket and no
clock, so a simulation drives it like a real connection.
"""

import httptools

from hermes_actors.consumer.senders.sender import Failure, Push, SendOutcome, Witness
from hermes_actors.runtime.network_causes import not_http_cause

HEAD_BYTES_MAX = 65_536
"""The limit of an answer's head, including interim answers; a longer one is malformed."""

HEADERS_MAX = 256
"""The limit of an answer's header lines, including those of interim answers."""

_INTERIMS_MAX = 100
_LEARNED_BYTES_MAX = 1_024
_RETRY_AFTER_CHARS_MAX = 64
_OK = SendOutcome(200)


def request_bytes(push: Push) -> bytes:
    """Return the whole request."""
    return b"%b%bContent-Length: %d\r\n\r\n%b" % (
        push.route.start,
        push.lines,
        len(push.body),
        push.body,
    )


def request_head_bytes(push: Push) -> bytes:
    """Return the request without its body."""
    return b"%b%bContent-Length: %d\r\n\r\n" % (push.route.start, push.lines, len(push.body))


class Exchange:
    """The request and answer of one connection, reused for one request after the other.

    Call `begin` before each request, then `receive` and `end_of_stream` until one of them returns
    an outcome. Then `is_reusable` says whether the connection may carry another request; if not,
    the caller closes it.
    """

    def __init__(self, body_bytes_max: int) -> None:
        self._body_bytes_max = body_bytes_max
        # Chunk sizes and trailers count neither as head nor as body.
        self._bytes_max = HEAD_BYTES_MAX + 2 * body_bytes_max
        self._parser = httptools.HttpResponseParser(self)
        self.is_busy = False
        self.is_reusable = True
        self.served = 0
        self._problem = ""
        self._surplus = False
        self.is_answered = False
        self._status = 0
        # The last answer that came complete in one piece. It left the parser in the same state, so
        # an identical answer need not be parsed again.
        self._learned: bytes | None = None
        self._learned_outcome = _OK
        self._witness: Witness | None = None

    def begin(self, witness: Witness | None = None) -> None:
        """Start a request; `witness` records its answer."""
        assert self.is_reusable, "this connection must be closed"
        assert not self.is_busy, "one request at a time"
        self.is_busy = True
        self.is_answered = False
        self._status = 0
        self._witness = witness
        if witness is not None:
            witness.begin()

    def receive(self, data: bytes) -> SendOutcome | None:
        """Handle bytes from the peer. Returns the outcome when the answer is complete. Never
        raises.
        """
        if not self.is_busy:
            # Unsolicited bytes: a 408 before closing, or a smuggled second answer.
            self.is_reusable = False
            return None
        if not self.is_answered:
            self.is_answered = True
            if data == self._learned and self._witness is None:
                self.is_busy = False
                self.served += 1
                return self._learned_outcome
            self._expect()
        if not self._status and self._bytes + len(data) > HEAD_BYTES_MAX:
            return self._receive_long(data)
        self._bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return self._malformed("the answer switches protocols")
        except httptools.HttpParserError as error:
            said = str(error) or type(error).__name__
            return self._malformed(self._problem or not_http_cause(data, said))
        if self._problem:
            return self._malformed(self._problem)
        # The first comparison is a cheap pre-check.
        if self._bytes > self._body_bytes_max and self._is_excessive():
            self.is_reusable = False
            if self._witness is not None:
                self._witness.is_cut = True
            return self._finish()
        if not self._is_complete:
            return None
        outcome = self._finish()
        is_whole = self._bytes == len(data) <= _LEARNED_BYTES_MAX
        if is_whole and self.is_reusable and self.served > 1:
            self._learned, self._learned_outcome = data, outcome
        return outcome

    def _expect(self) -> None:
        """Prepare for the first bytes of an answer."""
        self._retry_after = ""
        self._bytes = 0
        self._body_bytes = 0
        self._headers = 0
        self._interims = 0
        self._is_complete = False
        # `_problem` and `_surplus` stay: the connection is not used again.

    def _is_excessive(self) -> bool:
        is_long = self._body_bytes > self._body_bytes_max or self._bytes > self._bytes_max
        return is_long and bool(self._status)

    def _receive_long(self, data: bytes) -> SendOutcome | None:
        """As `receive`, for an answer's head near its limit, wherever the network splits it."""
        room = HEAD_BYTES_MAX - self._bytes
        outcome = self.receive(data[:room]) if room else None
        if outcome is not None:
            self.is_reusable = False
            return outcome
        if not self._status:
            return self._malformed(f"an answer's head above {HEAD_BYTES_MAX} bytes")
        return self.receive(data[room:])

    def end_of_stream(self, why: str = "") -> SendOutcome | None:
        """The peer closed or the connection broke. Returns the outcome if one was pending."""
        self.is_reusable = False
        if not self.is_busy:
            return None
        if self._status:
            return self._finish()
        return self.fail(Failure.RESET, why or "the connection was closed before an answer")

    def give_up(self, failure: Failure, detail: str) -> SendOutcome | None:
        """Stop waiting. Returns the status if the head has arrived, else this failure."""
        if not self.is_busy:
            return None
        self.is_reusable = False
        return self._finish() if self._status else self.fail(failure, detail)

    def fail(self, failure: Failure, detail: str) -> SendOutcome:
        """End the exchange without an answer."""
        self.is_busy = False
        self.is_reusable = False
        return SendOutcome(0, "", failure, detail)

    # The parser's callbacks. They run inside feed_data and only record.

    def on_message_begin(self) -> None:
        """A (further) answer begins. One after the final answer is surplus."""
        if self._is_complete:
            self._surplus = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Record Retry-After; a witness gets all headers."""
        self._headers += 1
        if self._headers > HEADERS_MAX:
            self._problem = f"an answer with more than {HEADERS_MAX} header lines"
        elif not self._status:
            if len(name) == 11 and name.lower() == b"retry-after":
                self._retry_after = value[: _RETRY_AFTER_CHARS_MAX + 1].decode("latin-1")
            if self._witness is not None:
                self._witness.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is complete: 1xx is counted, anything else is the status."""
        if self._surplus or self._problem:
            return
        status = self._parser.get_status_code()
        if 200 <= status <= 999:
            self._status = status
            if len(self._retry_after) > _RETRY_AFTER_CHARS_MAX:
                self._retry_after = ""
            return
        self._retry_after = ""
        if self._witness is not None:
            self._witness.begin()
        self._interims += 1
        if status < 100 or status == 101:
            self._problem = f"the status {status} is no answer to a POST"
        elif self._interims > _INTERIMS_MAX:
            self._problem = "too many interim answers"

    def on_body(self, body: bytes) -> None:
        """Count a piece of the body and drop it, unless there is a witness."""
        self._body_bytes += len(body)
        if self._witness is not None:
            self._witness.hear(body)

    def on_message_complete(self) -> None:
        """The end of an answer. Ignored for an interim one."""
        if self._status and not self._is_complete:
            self._is_complete = True
            # Without a length the body ends with the connection.
            if not self._parser.should_keep_alive():
                self.is_reusable = False

    def _malformed(self, detail: str) -> SendOutcome:
        self.is_reusable = False
        return self._finish() if self._status else self.fail(Failure.MALFORMED, detail)

    def _finish(self) -> SendOutcome:
        if self._surplus or not self._is_complete:
            self.is_reusable = False
        self.is_busy = False
        self.served += 1
        if self._status == 200 and not self._retry_after:
            return _OK
        return SendOutcome(self._status, self._retry_after)
