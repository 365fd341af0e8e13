"""How long filters hold up the loop: made-up filters × bodies × matchers, most of them hostile.

    python benchmarks/fuzzed_filters.py [--cases 3000] [--seed 1]

Each case is a list of filters and a message, asked as a consumer asks them on the loop. Prints the
most CPU that one question took there, and that making one list took where that is done there, each
with its case, and what became of the questions. What is the longest so far is tried three times,
and the shortest counts.
"""

import argparse
import gc
import random
import time
from collections import Counter
from operator import attrgetter
from typing import NamedTuple

import regex

from hermes_actors.config import FiltersConfig
from hermes_actors.filters.aside import COMPILE_MAX_S
from hermes_actors.filters.budget import Budget, BudgetSpent
from hermes_actors.filters.compiled import Candidate, Filters, is_soon_compiled, problems
from hermes_actors.filters.failures import FilterFailed
from hermes_actors.model.subscription import Filter

PATHS = (
    *("$.a", "$.a[*]", "$.a[0]", "$.a[-1]", "$.a[*].b", "$.*", "$.*.*.*", "a.b.c", "$.a[::2]"),
    *("$..*", "$..a", "$..a[*]", "$..b..c", "$.a[0:100000:1]", "$.a[?@ > 1]", "$.a[?@.b == 'x']"),
    *("$..[?@..a]", "$.a[?count(@..*) > 3]", "$.a[?length(@) > 1]", "$.a[?@ == $.a[0]]"),
    *("$..[?match(@, '(a|aa)+b')]", "$.a[?search(@, '(x+x+)+y')]", "$.a[?@.b[?@.c]]", "$['é']"),
)
MATCHERS = (
    *("1", ".*", "(a|aa)+b", "(a*)*b", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$", "(?=(a+))\\1b"),
    *("a{1,500}b", "(.|\\s)*z", "\\p{L}+", "(a?){50}a{50}", "[^1]*1.*", "(?i)STRASSE", "(ab|a)*c"),
    *("(\\d+,?)+$", ".*.*.*.*=.*", "(?<!a)b", "(a|b|ab)*\\1c"),
)
TEXTS = ("a", "x", "aab", "ab", "1,", "zZ9 ", "\\u00e9", "ß", "😀", '\\"')


def _text(rng: random.Random, size: int) -> str:
    unit = rng.choice(TEXTS)
    return f'"{unit * (size // len(unit.encode()) + 1)}"'


def _value(rng: random.Random, size: int) -> str:
    """JSON of about that many bytes."""
    small = min(size, rng.choice((10, 100, 8_192)))
    count = max(1, size // (small + 6))
    match rng.randrange(7):
        case 0:
            return "[" + ",".join(["1"] * (size // 2 + 1)) + "]"
        case 1:
            return _text(rng, size)
        case 2:
            return "[" + ",".join([_text(rng, small)] * count) + "]"
        case 3:
            return "[" + ",".join([f'{{"b":{_text(rng, small)}}}'] * count) + "]"
        case 4:
            return "{" + ",".join(f'"k{n}":{_text(rng, small)}' for n in range(count)) + "}"
        case 5:
            depth = min(size // 6, rng.choice((10, 500, 2_000)))
            kind = rng.choice((('{"a":', "}"), ("[", "]"), ('{"b":[', "]}")))
            return kind[0] * depth + "1" + kind[1] * depth
        case _:
            halves = (_value(rng, size // 2), _value(rng, size // 2)) if size > 50 else ("1", "2")
            return "[" + ",".join(halves) + "]"


def _body(rng: random.Random) -> bytes:
    size = rng.choice((20, 500, 4_000, 8_192, 30_000, 60_000, 200_000, 600_000))
    body = f'{{"a":{_value(rng, size)}}}'.encode()
    return body[:-1] if rng.random() < 0.02 else body


def _filter(rng: random.Random) -> Filter:
    matcher = rng.choice(MATCHERS) if rng.random() < 0.8 else rng.choice(TEXTS) * rng.randrange(300)
    if rng.random() < 0.1:
        return Filter(type="header", header="h", matcher=matcher)
    strategy = rng.choice(("all", "any"))
    path = rng.choice(PATHS)
    return Filter(type="jsonpath", path=path, matcher=matcher, matching_strategy=strategy)


class Case(NamedTuple):
    """Filters, a message's body, and what came of asking them."""

    wanted: list[Filter]
    body: bytes
    made_s: float
    asked_s: float
    outcome: str

    def line(self, what: str, took_s: float) -> str:
        """For people."""
        first, size = self.wanted[0], f"{len(self.body):,} bytes"
        filters = f"{len(self.wanted)} × {first.path or first.header} {first.matcher[:30]!r}"
        text = self.body[:20].decode(errors="replace")
        return f"{what:8} {took_s * 1_000:7.2f} ms  {filters}, {text}… ({size})"


def _ask(wanted: list[Filter], body: bytes) -> Case:
    cpu_s = time.thread_time
    # What others have left behind: none of it is this one's to use, or to clear away.
    regex.purge()
    gc.collect()
    began_s = cpu_s()
    filters = Filters(wanted, Budget(COMPILE_MAX_S, cpu_s))
    made_s = cpu_s() - began_s if is_soon_compiled(wanted) else 0.0
    candidate = Candidate(body, (("h", "a" * 8_192),))
    began_s = cpu_s()
    try:
        kind = filters.rejects(candidate, Budget(FiltersConfig().loop_cpu_ms / 1_000, cpu_s))
        outcome = "left out" if kind else "passed"
    except FilterFailed:
        outcome = "failed: not JSON, or too deep"
    except BudgetSpent:
        outcome = "asked again in a thread"
    return Case(wanted, body, made_s, cpu_s() - began_s, outcome)


def fuzz(cases: int, seed: int) -> None:
    """Ask, and print."""
    rng, counts = random.Random(seed), Counter[str]()
    asked = made = Case([], b"", 0.0, 0.0, "")
    while counts["cases"] < cases:
        wanted = [_filter(rng)] * rng.choice((1, 1, 100)) if rng.random() < 0.7 else []
        wanted = wanted or [_filter(rng) for _ in range(rng.choice((2, 10, 50)))]
        body = _body(rng)
        # Management refuses what cannot be compiled, or is too much of it.
        if any(problems(wanted, Budget(COMPILE_MAX_S, time.thread_time))):
            counts["refused when they are made"] += 1
            continue
        found = _ask(wanted, body)
        counts["cases"] += 1
        counts[found.outcome] += 1
        if found.asked_s > asked.asked_s or found.made_s > made.made_s:
            # What the machine did meanwhile does not come again.
            tries = [found, _ask(wanted, body), _ask(wanted, body)]
            asked = max(asked, min(tries, key=_asked_s), key=_asked_s)
            made = max(made, min(tries, key=_made_s), key=_made_s)
    print(asked.line("asking", asked.asked_s))
    print(made.line("making", made.made_s))
    print(", ".join(f"{count:,} {what}" for what, count in counts.items()))


_asked_s, _made_s = attrgetter("asked_s"), attrgetter("made_s")


def main() -> None:
    """Read the options and ask."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=3_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    fuzz(asked.cases, asked.seed)


if __name__ == "__main__":
    main()
