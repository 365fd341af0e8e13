"""`Idempotency-Key`: a publisher may retry, and its message is stored once. Pure.

The process remembers successful keys, each with its answer and a digest of the request, in a window
limited in number and time. An unknown key is published as if it were new, but always under the same
message id.
"""

import hashlib
import re
from collections import OrderedDict

from msgspec import Struct

from hermes_actors.errors import ErrorCode, Refused, Unavailable

HEADER = "Idempotency-Key"
KEY_LENGTH_MAX = 255
RETRY_AFTER_S = 1

_SUCCESSES = (201, 202)
# RFC 9651, 3.3.3: a string. Its parameters are ignored.
_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"[ \t]*(?:;[ -~]*)?')
_BARE = re.compile(r"[!#-+\--:<-\[\]-~]+")
_ESCAPED = re.compile(r"\\(.)")


def parse_key(value: str) -> str:
    """Parse the header's value: a structured-field string, or the same without quotes. Raises
    Refused.
    """
    text = value.strip(" \t")
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        key = _ESCAPED.sub(r"\1", quoted[1])
    elif _BARE.fullmatch(text):
        key = text
    else:
        raise Refused(
            f'{HEADER} is neither a string in double quotes nor visible ASCII without ", comma, '
            'semicolon and backslash; send for example "8e03978e-40d5-43dd-bc93-6894a57f9324"'
        )
    if not 0 < len(key) <= KEY_LENGTH_MAX:
        raise Refused(
            f"{HEADER} has {len(key)} characters; send 1 to {KEY_LENGTH_MAX}, a UUID for example"
        )
    return key


class KeyClaim:
    """One use of a key: the first, which is published, or a repeat, which needs the body to
    compare.
    """

    __slots__ = ("_digest", "_is_open", "_name", "_status", "_window")

    def __init__(
        self, window: "KeyWindow", name: tuple[str, str, str], digest: bytes, status: int
    ) -> None:
        """`name` is the header, the log topic and the key. `status` is 0 for the first use, else
        the status and `digest` of the first use.
        """
        self._window = window
        self._name = name
        self._digest = digest
        self._status = status
        self._is_open = not status

    def match(self, partition_key: bytes | None, body: bytes) -> int:
        """Compare the complete body with the first use. Returns 0 if the message is to be
        published, else the status to repeat. Raises Refused if the payload differs.
        """
        digest = _digest_of(partition_key, body)
        if not self._status:
            self._digest = digest
        elif digest != self._digest:
            raise Refused(
                f"{self._name[0]} was used for another message before: body or Partition-Key "
                "differ; use a new one for each message",
                status=422,
            )
        return self._status

    def conclude(self, status: int, now_s: float) -> None:
        """Record the status of the answer, 0 if none was sent. A failed first use is forgotten, so
        that it can be retried.
        """
        if self._is_open:
            self._is_open = False
            self._window.end(self._name, _Answered(self._digest, status, now_s))


class _Answered(Struct, frozen=True, gc=False):
    """The answer to a key's first use."""

    digest: bytes
    status: int
    at_s: float


class KeyWindow:
    """The keys of one process: at most `keys_max`, each kept for `window_s` after its answer.

    `now_s` is monotonic. Keys are separate for each incarnation of a topic.
    """

    def __init__(self, keys_max: int, window_s: float) -> None:
        self._keys_max = keys_max
        self._window_s = window_s
        self._under_way: set[tuple[str, str, str]] = set()
        # Sorted by time of answer, and so by expiry.
        self._answered: OrderedDict[tuple[str, str, str], _Answered] = OrderedDict()

    def __len__(self) -> int:
        return len(self._under_way) + len(self._answered)

    def claim(self, log_topic: str, key: str, now_s: float, header: str = HEADER) -> KeyClaim:
        """Claim the key that came in this header.

        Raises Refused (409) while its first use is under way, and Unavailable if too many first
        uses are under way to remember another.
        """
        self._expire(now_s)
        name = (header, log_topic, key)
        if name in self._under_way:
            error = Refused(
                f"A publish with this {header} is under way; try again when it has been answered",
                ErrorCode.OTHER,
                409,
            )
            error.headers = (("retry-after", str(RETRY_AFTER_S)),)
            raise error
        answered = self._answered.get(name)
        if answered is not None:
            return KeyClaim(self, name, answered.digest, answered.status)
        if len(self._under_way) >= self._keys_max:
            raise Unavailable(
                f"{len(self._under_way)} publishes with an {HEADER} are under way, the maximum; "
                "try again later, or raise frontend.idempotency.keys_max"
            )
        while len(self) >= self._keys_max:
            self._answered.popitem(last=False)
        self._under_way.add(name)
        return KeyClaim(self, name, b"", 0)

    def end(self, name: tuple[str, str, str], answered: _Answered) -> None:
        """Record the answer to a key's first use; only a success is remembered."""
        self._under_way.discard(name)
        if answered.status in _SUCCESSES:
            self._answered[name] = answered

    def _expire(self, now_s: float) -> None:
        answered = self._answered
        while answered:
            oldest = next(iter(answered.values()))
            if now_s < oldest.at_s + self._window_s:
                return
            answered.popitem(last=False)


def _digest_of(partition_key: bytes | None, body: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    if partition_key is not None:
        # The length separates key and body; no key differs from an empty key.
        digest.update(b"%d:" % len(partition_key) + partition_key)
    digest.update(b"|")
    digest.update(body)
    return digest.digest()
