"""Made-up schemas and bodies, most of them hostile: only the errors that are promised, and soon."""

import json
import random
import time  # noqa: TID251 -- the CPU time of the work itself is judged
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from hermes_actors.errors import Refused
from hermes_actors.model.schema import SchemaKind
from hermes_actors.schema.avro import AvroSchema, BodyForm, UndecodableAvro
from hermes_actors.schema.loop_limits import BODY_BYTES_MAX, UNITS_MAX, is_small
from hermes_actors.schema.work import loop_schema

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
PROMISED = (Refused, UndecodableAvro)


def a_type(rng: random.Random, depth: int, names: list[str]) -> Any:
    if depth <= 0 or rng.random() < 0.15:
        return rng.choice((*PRIMITIVES, *names))
    name = f"N{rng.getrandbits(30)}"
    match rng.randrange(6):
        case 0:
            return {"type": "array", "items": a_type(rng, depth - 1, names)}
        case 1:
            return {"type": "map", "values": a_type(rng, depth - 1, names)}
        case 2:
            return [a_type(rng, depth - 1, names) for _ in range(rng.choice((1, 2, 3, 8)))]
        case 3:
            return {"type": "enum", "name": name, "symbols": ["s", "x" * rng.choice((1, 3_000))]}
        case 4:
            return {"type": "fixed", "name": name, "size": rng.choice((0, 1, 100_000))}
    names.append(name)
    fields: list[dict[str, Any]] = []
    for at in range(rng.choice((0, 1, 2, 3, 40))):
        fields.append({"name": f"f{at}", "type": a_type(rng, depth - 1 if at < 4 else 0, names)})
        if rng.random() < 0.4:
            fields[-1]["default"] = rng.choice((None, 0, "", [], {}, [[]], {"f0": {}}, "x" * 5_000))
    return {"type": "record", "name": name, "fields": fields}


def a_body(rng: random.Random) -> bytes:
    size = rng.choice((5, 60, 500, 5_000, 60_000))
    value = rng.choice((b"{}", b"[]", b"1e300", b'"x"', b"null", b"1", b'{"f0":[]}', b'{"f0":{}}'))
    bodies = (
        rng.randbytes(size),
        bytes([rng.choice((0, 1, 2, 4, 128, 255))]) * size,
        bytes(rng.choices((0, 2, 4, 6), k=size)),
        b'{"f0":' * (size // 6) + b"0" + b"}" * (size // 6),
        b'{"f0":[' + b",".join([value] * (size // len(value))) + b"]}",
        b'{"f0":' + b"1" * size + b"}",
    )
    return rng.choice(bodies)


def took_s(work: Any) -> float:
    began_s = time.thread_time()
    with suppress(*PROMISED):
        work()
    return time.thread_time() - began_s


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_hostile_authors_may_have_done_on_the_loop_is_soon_done() -> None:
    rng = random.Random(1)
    pairs = 0
    while pairs < 10_000:
        fields = [{"name": "f0", "type": a_type(rng, rng.randrange(1, 5), ["int"])}]
        text = json.dumps({"type": "record", "name": "T", "fields": fields})
        schema = loop_schema(SchemaKind.AVRO, text)
        if not isinstance(schema, AvroSchema) or schema.parts is None:
            continue
        for _ in range(10):
            pairs += 1
            body = a_body(rng)[: min(BODY_BYTES_MAX, UNITS_MAX // schema.parts)]
            works: list[Any] = [partial(schema.to_json, body)]
            if is_small(body):
                works += [partial(schema.take, body, form, {}) for form in BodyForm]
            for work in works:
                # Once of three times is enough: others run on this machine too.
                assert any(took_s(work) < 0.05 for _ in range(3))
