"""Strategies of Avro schemas, with values in plain JSON that fit them and survive the way back."""

from itertools import count
from typing import Any

from hypothesis import strategies as st

INT, LONG = 2**31, 2**63
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)

Pair = tuple[Any, st.SearchStrategy[Any]]
"""A type of a schema, and the values of it."""

PRIMITIVES: list[Pair] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-INT, INT - 1)),
    ("long", st.integers(-LONG, LONG - 1)),
    ("double", st.floats(allow_nan=False, allow_infinity=False)),
    ("string", text),
    # A text becomes its bytes in UTF-8 and comes back as those of ISO 8859-1.
    ("bytes", st.text(st.characters(max_codepoint=127), max_size=8)),
]


@st.composite
def pairs(draw: st.DrawFn, numbers: Any, depth: int = 3) -> Pair:
    """Draw a type and the strategy of its values."""
    kinds = ["primitive", "primitive", "enum"]
    if depth:
        kinds += ["array", "map", "record", "optional", "union"]
    kind = draw(st.sampled_from(kinds))
    if kind == "primitive":
        return draw(st.sampled_from(PRIMITIVES))
    if kind == "enum":
        symbols = draw(st.lists(names, min_size=1, max_size=4, unique=True))
        named = {"type": "enum", "name": f"E{next(numbers)}", "symbols": symbols}
        return named, st.sampled_from(symbols)
    if kind == "record":
        return draw(records(numbers, depth - 1))
    if kind == "union":
        # Of these each value fits one branch alone.
        chosen = draw(st.permutations(["null", "string", "boolean", "long"]))[:3]
        known = dict(PRIMITIVES)
        return chosen, st.one_of([known[each] for each in chosen])
    below, values = draw(pairs(numbers, depth - 1))
    if kind == "array":
        # Within a union an item takes a byte, as it must.
        items = below if isinstance(below, list) else ["null", below if below != "null" else "int"]
        return {"type": "array", "items": items}, st.lists(values, max_size=3)
    if kind == "map":
        return {"type": "map", "values": below}, st.dictionaries(text, values, max_size=3)
    if below == "null" or isinstance(below, list):
        return below, values
    return ["null", below], st.none() | values


@st.composite
def records(draw: st.DrawFn, numbers: Any = None, depth: int = 3) -> Pair:
    """Draw a record and the strategy of its values."""
    numbers = numbers or count(1)
    name = f"R{next(numbers)}"
    fields = [
        (field, *draw(pairs(numbers, depth)))
        for field in draw(st.lists(names, min_size=1, max_size=4, unique=True))
    ]
    schema = {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": kind} for field, kind, _ in fields],
    }
    return schema, st.fixed_dictionaries({field: values for field, _, values in fields})


@st.composite
def fitting(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Draw a schema and a value that fits it."""
    schema, values = draw(records())
    return schema, draw(values)
