"""Synthetic Avro schemas, with values in plain JSON that fit them and survive the round trip."""

import random
from collections.abc import Callable
from typing import Any

Pair = tuple[Any, Callable[[], Any]]
"""A type of a schema, and a function that makes values of it."""


class Made:
    """A synthetic record and a value that fits it, from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.count = 0
        self.schema, make = self.record(3)
        self.value = make()

    def text(self) -> str:
        return "".join(self.rng.choices("az09 é€\0", k=self.rng.randrange(8)))

    def primitives(self) -> dict[str, Callable[[], Any]]:
        rng = self.rng
        return {
            "null": lambda: None,
            "boolean": lambda: rng.random() < 0.5,
            "int": lambda: rng.choice((0, -1, 2**31 - 1, -(2**31), rng.getrandbits(31))),
            "long": lambda: rng.choice((0, -1, 2**63 - 1, -(2**63), rng.getrandbits(63))),
            "double": lambda: rng.choice((0.0, -0.5, 1e300, 5e-324, rng.random())),
            "string": self.text,
            # A text becomes its bytes in UTF-8, which come back as ISO 8859-1.
            "bytes": lambda: self.text().encode().decode("ascii", "ignore"),
        }

    def named(self, kind: str, **more: Any) -> dict[str, Any]:
        self.count += 1
        return {"type": kind, "name": f"N{self.count}", **more}

    def pair(self, depth: int) -> Pair:
        rng = self.rng
        kinds = ["primitive", "enum", "array", "map", "record", "optional", "union"]
        match rng.choice(kinds if depth else kinds[:2]):
            case "primitive":
                return rng.choice(list(self.primitives().items()))
            case "enum":
                symbols = ["A", "B", "C"][: rng.randrange(1, 4)]
                return self.named("enum", symbols=symbols), lambda: rng.choice(symbols)
            case "record":
                return self.record(depth - 1)
            case "union":
                # Each value fits only one branch of the union.
                known = self.primitives()
                chosen = rng.sample(["null", "string", "boolean", "long"], 3)
                return chosen, lambda: known[rng.choice(chosen)]()
            case "array":
                below, make = self.pair(depth - 1)
                items = below if below != "null" else ["null", "int"]
                make_all = lambda: [make() for _ in range(rng.randrange(4))]  # noqa: E731
                return {"type": "array", "items": items}, make_all
            case "map":
                below, make = self.pair(depth - 1)
                make_map = lambda: {self.text(): make() for _ in range(rng.randrange(4))}  # noqa: E731
                return {"type": "map", "values": below}, make_map
        below, make = self.pair(depth - 1)
        if below == "null" or isinstance(below, list):
            return below, make
        return ["null", below], lambda: rng.choice((None, make()))

    def record(self, depth: int) -> Pair:
        fields = {f"f{at}": self.pair(depth) for at in range(self.rng.randrange(1, 5))}
        described = [{"name": name, "type": kind} for name, (kind, _) in fields.items()]
        return self.named("record", fields=described), lambda: {
            name: make() for name, (_, make) in fields.items()
        }
