"""Regular expressions that must match a whole text.

The engine backtracks, because filters use look-ahead to say "not". So on the event loop each match
has a time limit, and large patterns are used only in workers.
"""

import regex

from hermes_actors.filters.failures import FilterInvalid, TooLong
from hermes_actors.filters.loop_time import LoopTime

TEXT_CHARACTERS_MAX = 10_000
LOOP_SIZE_MAX = 500
"""Maximum size of a pattern compiled on the loop: its characters plus its repetitions."""

_COUNTED = regex.compile(r"\{(\d{0,9})(?:,(\d{0,9}))?\}")
_COUNTED_AGAIN = regex.compile(r"[)}+*?]\{")
_NESTED = regex.compile(r"\)[*+?]")
_LOOP_NESTED_MAX = 5
# Java's classes are ASCII, but its properties are not: \w is ASCII there, \p{L} is not.
_UNICODE = regex.compile(r"\\[pP]|\[:|\(\?[a-zA-Z]*u")
_UNTIMED_CHARACTERS_MAX = 1_000


class Pattern:
    r"""A compiled regular expression with the syntax of the `regex` module. `\w`, `\d`, `\s` and
    `\b` are ASCII only, as in Java, unless the pattern uses Unicode properties (`\p{…}`).
    """

    __slots__ = ("_is_linear", "_match")

    def __init__(self, text: str) -> None:
        """Raises FilterInvalid, naming the field `matcher`."""
        self._match = _compiled(text).fullmatch
        # Setting a time limit takes longer than a simple match.
        self._is_linear = "(" not in text and sum(map(text.count, "*+?{")) <= 1

    def matches(self, text: str, time: LoopTime | None) -> bool:
        """True if the whole text matches. Raises TooLong when `time` is used up; None: no limit."""
        if time is None or (self._is_linear and len(text) <= _UNTIMED_CHARACTERS_MAX):
            return self._match(text) is not None
        try:
            return self._match(text, timeout=time.left_s()) is not None
        except TimeoutError:
            raise TooLong from None


def is_for_loop(text: str) -> bool:
    """True if the pattern is compiled quickly and needs little memory."""
    if len(text) > LOOP_SIZE_MAX or len(_NESTED.findall(text)) > _LOOP_NESTED_MAX:
        return False
    counts = [max(int(n or 0), int(m or 0)) for n, m in _COUNTED.findall(text)]
    return not _COUNTED_AGAIN.search(text) and len(text) + sum(counts) <= LOOP_SIZE_MAX


def _compiled(text: str) -> regex.Pattern[str]:
    if len(text) > TEXT_CHARACTERS_MAX:
        raise FilterInvalid("matcher", f"must have at most {TEXT_CHARACTERS_MAX} characters")
    try:
        return regex.compile(text, 0 if _UNICODE.search(text) else regex.ASCII)
    except regex.error as error:
        raise FilterInvalid("matcher", f"must be a regular expression: {error}") from error
    except (ValueError, OverflowError) as error:
        # Contradicting flags, or a number too large for the engine.
        raise FilterInvalid("matcher", f"must be a regular expression: {error}") from error
    except RecursionError as error:
        raise FilterInvalid("matcher", "is nested too deeply") from error
