"""The seeds of randomised tests. As with the examples of properties, `make check` tries some of
them, `make test` all.
"""

from hypothesis import settings


def seeds(count: int) -> range:
    is_full = settings.get_profile("full").max_examples == settings().max_examples
    return range(count if is_full else (count + 4) // 5)
