"""Regular expressions that must match a whole text, and take bounded memory and time for it.

The engine backtracks, for filters say "not" with look-ahead; so a match has what is left of its
message's time, and what a pattern grows to when its repetitions are written out is bounded before
it is compiled.
"""

import math

import regex

from hermes_actors.filters.budget import Budget
from hermes_actors.filters.failures import FilterInvalid

TEXT_CHARACTERS_MAX = 10_000
PATTERN_SIZE_MAX = 20_000
"""Of a pattern with its repetitions written out: `a{3}` is 3. About 6 MB when compiled."""

_REPETITION = regex.compile(r"\{(\d*)(?:,\d*)?\}")
_RECURSION = regex.compile(r"\(\?(?:R|[+-]?\d|&|P>)")
# Java's classes are those of ASCII, but not the properties: \w is ASCII there, \p{L} is not.
_PROPERTY = regex.compile(r"\\[pP]|\[:")
_VARIABLE = regex.compile(r"(?<!\()[*+?]|\{\d*,")
_REPEATED_GROUP = regex.compile(r"\)[*+?{]")
_BACK_REFERENCE = regex.compile(r"\\\d|\\g|\(\?P=")
# `(?:abc){e<=2}` matches what is nearly that, and `(?b)` the best of all: in how many steps is
# for nobody to say.
_FUZZY = regex.compile(r"\{[^\d,]|\(\?[a-zA-Z]*[bep]")
# In verbose patterns spaces and comments may stand between.
_LAZY = regex.compile(r"(?<!\\)(?:\\\\)*[*+?}](?:\s|#[^\n]*\n)*\?")
_NEVER = "(?!)|"

_UNTIMED_STEPS_MAX = 20_000
"""How much a match may try without a clock: a tenth of a millisecond."""
_SEARCHED_SIZE_MAX = 100
"""Of a pattern in which the module may search for a text, with its repetitions written out: the
tables for that take a quarter of a millisecond, once.
"""


class Pattern:
    r"""A compiled regular expression. Syntax: the `regex` module's; `\w`, `\d`, `\s` and `\b` know
    ASCII only, as in Java, unless the pattern names Unicode properties (`\p{…}`).
    """

    __slots__ = ("_match", "_untimed_characters")

    def __init__(self, text: str) -> None:
        """Raises FilterInvalid, which names the field `matcher`."""
        compiled = _compiled(text)
        self._match = compiled.fullmatch
        # The clock costs four times as much as a match that is over soon.
        self._untimed_characters = _untimed_characters(text)

    def matches(self, text: str, budget: Budget) -> bool:
        """True if all of the text matches. Raises BudgetSpent when that takes too long. In a thread
        the loop goes on meanwhile.
        """
        if len(text) <= self._untimed_characters:
            return self._match(text) is not None
        left_s = budget.look()
        try:
            found = self._match(text, timeout=left_s, concurrent=budget.is_aside) is not None
        except TimeoutError:
            place = f"its matcher, at a text of {len(text)} characters"
            raise budget.spent_in(place) from None
        budget.look()
        return found


def _untimed_characters(text: str) -> float:
    """Up to how long a text is matched within `_UNTIMED_STEPS_MAX` steps.

    Each repetition tries at most each place where it could end, and what follows anew at each;
    alternatives are tried one by one, those of several groups with one another. What is written
    within sets and escapes counts as well, which only makes it less.
    """
    alternatives, repetitions = 1 + text.count("|"), len(_VARIABLE.findall(text))
    if any(each.search(text) for each in (_REPEATED_GROUP, _BACK_REFERENCE, _FUZZY)):
        return 0
    if alternatives > 1 and text.count("(") > 1:
        return 0
    if not repetitions:
        return float("inf")
    steps_max = _UNTIMED_STEPS_MAX / (alternatives * pattern_size(text))
    return math.pow(steps_max, 1 / repetitions)


def unsearched(text: str) -> str:
    """The same pattern, of which the module begins no match by a search for what each must have.

    For that it makes tables as Boyer and Moore do, with the first text that is long enough, in a
    time that grows with the third power of a length in which parts recur: ten seconds for 4,800
    characters, in which the interpreter does nothing else. Where there is a choice there is nothing
    that each must have.
    """
    return _NEVER + text if compiled_size(text) > _SEARCHED_SIZE_MAX else text


def is_bounded(text: str) -> bool:
    """True if compiling the pattern takes bounded memory."""
    return len(text) <= TEXT_CHARACTERS_MAX and pattern_size(text) <= PATTERN_SIZE_MAX


def compiled_size(text: str) -> int:
    """How much there is to compile: the pattern's characters, or what they grow to if that is more.
    Soon told also of a text that is no pattern for its length.
    """
    size = len(text)
    return size if size > TEXT_CHARACTERS_MAX else max(size, pattern_size(text))


def _compiled(text: str) -> regex.Pattern[str]:
    if len(text) > TEXT_CHARACTERS_MAX:
        raise FilterInvalid("matcher", f"must have at most {TEXT_CHARACTERS_MAX} characters")
    if _RECURSION.search(text):
        raise FilterInvalid("matcher", "must not call itself or one of its groups")
    if pattern_size(text) > PATTERN_SIZE_MAX:
        raise FilterInvalid(
            "matcher",
            f"must have at most {PATTERN_SIZE_MAX} characters with its repetitions ({{n}}) "
            "written out; use smaller ones",
        )
    if _LAZY.search(text) and pattern_size(text) > _SEARCHED_SIZE_MAX:
        # What follows a lazy repetition is searched for, by the same tables.
        raise FilterInvalid(
            "matcher",
            f"must have at most {_SEARCHED_SIZE_MAX} characters where a repetition is lazy (`*?`); "
            "in a match of the whole text a greedy one (`*`) does as well",
        )
    flags = 0 if _PROPERTY.search(text) else regex.ASCII
    text = unsearched(text)
    try:
        return regex.compile(text, flags)
    except regex.error as error:
        raise FilterInvalid("matcher", f"must be a regular expression: {error}") from error
    except (ValueError, OverflowError) as error:
        if flags:
            # `(?u)` asks for Unicode by itself.
            return _unicode(text)
        raise FilterInvalid("matcher", f"must be a regular expression: {error}") from error
    except RecursionError as error:
        raise FilterInvalid("matcher", "must not nest so deep") from error


def _unicode(text: str) -> regex.Pattern[str]:
    try:
        return regex.compile(text)
    except (regex.error, ValueError, OverflowError, RecursionError) as error:
        raise FilterInvalid("matcher", f"must be a regular expression: {error}") from error


def pattern_size(text: str) -> int:
    """How many characters the pattern has with the least of each repetition written out.

    A group that must come once at least is written once more than that, for what may follow: what
    is nested so grows with each level.
    """
    outer: list[int] = []
    total = last = at = 0
    is_group = False
    while at < len(text):
        character = text[at]
        times, end = _times(text, at, is_group=is_group)
        if end > at:
            # Capped: the product of many must stay a number that is quickly multiplied.
            total = min(total + last * (times - 1), 10 * PATTERN_SIZE_MAX)
            last = min(last * times, 10 * PATTERN_SIZE_MAX)
            is_group = False
            at = end
            continue
        is_group = character == ")" and bool(outer)
        if character == "(":
            outer.append(total)
            total = last = 0
        elif is_group:
            last = total
            total += outer.pop()
        else:
            total += 1
            last = 1
            at += _length(text, at) - 1
        at += 1
    return total + sum(outer)


def _times(text: str, at: int, *, is_group: bool) -> tuple[int, int]:
    """How often a repetition at this place writes out what stands before, and where it ends; its
    end is `at` when there is none that does.
    """
    if is_group and text[at] == "+":
        return 2, at + 1
    repetition = _REPETITION.match(text, at) if text[at] == "{" else None
    if repetition is None:
        return 1, at
    least = min(int(repetition[1][:9] or 0), PATTERN_SIZE_MAX + 1)
    return max(1, least + 1 if is_group and least else least), repetition.end()


def _length(text: str, at: int) -> int:
    """How many characters the atom at this place has: an escape, a set, or one by itself."""
    if text[at] == "\\":
        return 2
    if text[at] != "[":
        return 1
    end = at + 1
    if text.startswith("^", end):
        end += 1
    # A bracket right after the opening one is a member.
    if text.startswith("]", end):
        end += 1
    while end < len(text) and text[end] != "]":
        end += 2 if text[end] == "\\" else 1
    return end - at + 1
