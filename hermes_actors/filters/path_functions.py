"""The functions of JSONPath's filter expressions; those with regular expressions are bounded."""

import regex
from iregexp_check import check
from jsonpath_rfc9535 import JSONPathEnvironment
from jsonpath_rfc9535.function_extensions import Match, Search
from jsonpath_rfc9535.function_extensions._pattern import map_re

from hermes_actors.filters.failures import FilterFailed
from hermes_actors.filters.patterns import is_bounded

MATCH_TIME_MAX_S = 0.002
"""For one `match()` or `search()`: a path asks it of many parts of one message."""


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
    if not is_bounded(pattern) or not check(pattern):
        return False
    # The module keeps the compiled ones.
    ask = regex.fullmatch if is_whole else regex.search
    try:
        found = ask(map_re(pattern), string, regex.VERSION1, timeout=MATCH_TIME_MAX_S)
    except regex.error:
        return False
    except TimeoutError:
        name = "match" if is_whole else "search"
        raise FilterFailed(
            f"{name}() in its path took more than {MATCH_TIME_MAX_S * 1_000:g} ms",
            is_costly=True,
        ) from None
    return found is not None


class _Environment(JSONPathEnvironment):
    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        self.function_extensions["match"] = _BoundedMatch()
        self.function_extensions["search"] = _BoundedSearch()


ENVIRONMENT = _Environment()
"""The standard's functions, with bounds. Holds no state."""
