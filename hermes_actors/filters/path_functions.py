"""The functions of JSONPath's filter expressions; those with regular expressions are bounded."""

from contextvars import ContextVar

import regex
from iregexp_check import check
from jsonpath_rfc9535 import JSONPathEnvironment
from jsonpath_rfc9535.function_extensions import Match, Search
from jsonpath_rfc9535.function_extensions._pattern import map_re

from hermes_actors.filters.budget import Budget, BudgetSpent
from hermes_actors.filters.patterns import compiled_size, is_bounded, unsearched

BUDGET: ContextVar[Budget] = ContextVar("BUDGET")
"""Of the message that is being looked into: the library hands nothing on to its functions."""

_LOOP_PATTERN_MAX = 500
"""A longer pattern, which may be the message's, is compiled in a thread."""


class _BoundedMatch(Match):
    def __call__(self, string: object, pattern: object) -> bool:
        return _asks(string, pattern, is_whole=True)


class _BoundedSearch(Search):
    def __call__(self, string: object, pattern: object) -> bool:
        return _asks(string, pattern, is_whole=False)


def _asks(string: object, pattern: object, *, is_whole: bool) -> bool:
    """False for what is no text, and for what is no I-Regexp (RFC 9485), as the standard says."""
    if not isinstance(string, str) or not isinstance(pattern, str):
        return False
    budget = BUDGET.get()
    left_s = budget.look()
    if not budget.is_aside and len(pattern) > _LOOP_PATTERN_MAX:
        raise BudgetSpent(f"a pattern of {len(pattern)} characters is too long for the loop")
    if not is_bounded(pattern) or not check(pattern):
        return False
    if not budget.is_aside and compiled_size(pattern) > _LOOP_PATTERN_MAX:
        raise BudgetSpent("a pattern is too large for the loop with its repetitions written out")
    # The module keeps the compiled ones.
    ask = regex.fullmatch if is_whole else regex.search
    try:
        found = ask(
            unsearched(map_re(pattern)),
            string,
            regex.VERSION1,
            timeout=left_s,
            concurrent=budget.is_aside,
        )
    except regex.error:
        return False
    except TimeoutError:
        name = "match" if is_whole else "search"
        raise budget.spent_in(f"{name}() of its path") from None
    return found is not None


class _Environment(JSONPathEnvironment):
    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        self.function_extensions["match"] = _BoundedMatch()
        self.function_extensions["search"] = _BoundedSearch()


ENVIRONMENT = _Environment()
"""The standard's functions, with bounds. Holds no state."""
