"""How long filters hold up the loop: made-up filters × bodies × matchers, most of them hostile.

    python benchmarks/fuzzed_filters.py [--cases 3000] [--seed 1]

Each case is a list of filters and a message, asked as a consumer asks them on the loop. Prints the
most CPU that one question took there, and that making one list took where that is done there, each
with its case, and what became of the questions. Other processes make none of it longer.
"""

import argparse
import gc
import random
import time
from collections import Counter
from collections.abc import Callable

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


class Worst:
    """The longest of one kind, and what it was."""

    def __init__(self, what: str) -> None:
        self.what, self.took_s, self.case = what, 0.0, ""

    def note(self, took_s: float, case: Callable[[], str]) -> None:
        """It took so long; `case` tells what it was."""
        if took_s > self.took_s:
            self.took_s, self.case = took_s, case()

    def line(self) -> str:
        """For people."""
        return f"{self.what:8} {self.took_s * 1_000:7.2f} ms  {self.case}"


def fuzz(cases: int, seed: int) -> None:
    """Ask, and print."""
    rng, cpu_s, config = random.Random(seed), time.thread_time, FiltersConfig()
    asked, made = Worst("asking"), Worst("making")
    counts: Counter[str] = Counter()
    while counts["cases"] < cases:
        wanted = [_filter(rng)] * rng.choice((1, 1, 100)) if rng.random() < 0.7 else []
        wanted = wanted or [_filter(rng) for _ in range(rng.choice((2, 10, 50)))]
        body = _body(rng)
        # Management refuses what cannot be compiled, or is too much of it.
        if any(problems(wanted, Budget(COMPILE_MAX_S, cpu_s))):
            counts["refused when they are made"] += 1
            continue
        counts["cases"] += 1
        # What others have left behind is not this one's to clear away.
        gc.collect()

        def case(wanted: list[Filter] = wanted, body: bytes = body) -> str:
            first, size = wanted[0], f"{len(body):,} bytes"
            what = f"{len(wanted)} × {first.path or first.header} {first.matcher[:30]!r}"
            return f"{what}, {body[:20].decode(errors='replace')}… ({size})"

        began_s = cpu_s()
        filters = Filters(wanted, Budget(COMPILE_MAX_S, cpu_s))
        if is_soon_compiled(wanted):
            made.note(cpu_s() - began_s, case)
        candidate = Candidate(body, (("h", "a" * 8_192),))
        began_s = cpu_s()
        try:
            kind = filters.rejects(candidate, Budget(config.loop_cpu_ms / 1_000, cpu_s))
            outcome = "left out" if kind else "passed"
        except FilterFailed:
            outcome = "failed: not JSON, or too deep"
        except BudgetSpent:
            outcome = "asked again in a thread"
        asked.note(cpu_s() - began_s, case)
        counts[outcome] += 1
    for each in (asked, made):
        print(each.line())
    print(", ".join(f"{count:,} {what}" for what, count in counts.items()))


def main() -> None:
    """Read the options and ask."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=3_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    fuzz(asked.cases, asked.seed)


if __name__ == "__main__":
    main()
