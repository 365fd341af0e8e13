"""The record of one push on the wire and of its answer, for whoever wants to see it."""

BODY_BYTES_KEPT = 18_432
"""The most of an answer's body that is kept: what is shown of it, and the longest secret that may
begin there and has to be known whole to be left out."""


class Witness:
    """Kept by the senders of a push that has one, of its last attempt on the wire.

    `lines` are the header lines that a sender has added to those of the push (a token). `headers`
    are the answer's, `body` the beginning of its body, `body_bytes` how long that was as far as it
    was read.
    """

    __slots__ = ("body", "body_bytes", "headers", "lines")

    def __init__(self) -> None:
        self.lines = b""
        self.begin()

    def begin(self) -> None:
        """Forget what an earlier answer said, or an interim one: another is awaited."""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.body_bytes = 0

    def hear(self, piece: bytes) -> None:
        """Take in a piece of the answer's body."""
        self.body_bytes += len(piece)
        if len(self.body) < BODY_BYTES_KEPT:
            self.body += piece[: BODY_BYTES_KEPT - len(self.body)]
