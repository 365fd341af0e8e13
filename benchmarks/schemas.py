"""The cost of schemas at publishing, and how long hostile ones hold up the loop.

    python benchmarks/schemas.py [--rounds 3] [--seconds 3] [--connections 32] [--cases 3000]
        [--seed 1]

First one check of a message of 1 KiB with twenty fields, compared with decoding it, and the same
message into Avro and back. Then two nodes on embedded logs are published to in turn: one without
and with the schema, the other to an AVRO topic. Then synthetic schemas and messages, most of them
hostile: the longest CPU time on the loop of adopting one schema and of checking one message, and
the results. Each new longest case is tried three times; the shortest counts.
"""

import argparse
import gc
import http.client
import json
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from hermes_actors.metadata.catalog import Catalog
from hermes_actors.model.message import Message
from hermes_actors.model.schema import SCHEMA_BYTES_MAX, Schema, SchemaKind
from hermes_actors.runtime.workers import InlinePool, WorkerPool
from hermes_actors.schema import avro
from hermes_actors.schema.avro import BodyForm
from hermes_actors.schema.loop_limits import UNITS_MAX
from hermes_actors.schema.source import CatalogSchemas
from hermes_actors.schema.validation import BodyHead, JsonValidation
from hermes_local.ports import free_ports
from publishing.load import Load, Target, run
from publishing.messages import TOPIC, Messages
from publishing.node import Node

FIELDS = 20
BODIES = 10
"""Synthetic messages for each synthetic schema."""
KINDS = ("string", "integer", "number", "boolean")
WITHOUT, WITH, AS_AVRO = "without", "with its schema", "to an AVRO topic"
PATTERNS = ("^(a+)+$", "(a|aa)+b", "a{1,500}b", "\\w{50}", "(.|\\s)*z", "^[a-z]+$", "(x+x+)+y")


def everyday() -> tuple[dict[str, Any], list[bytes]]:
    """A schema of twenty required fields, and messages of about 1 KiB that fit it."""
    names = [f"field_{at:02}" for at in range(FIELDS)]
    properties = {name: {"type": KINDS[at % 4]} for at, name in enumerate(names)}
    schema = {
        "type": "object",
        "properties": properties,
        "required": names,
        "additionalProperties": False,
    }
    rng, bodies = random.Random(1), []
    for _ in range(64):
        values = [rng.randbytes(70).hex(), rng.getrandbits(30), rng.random(), True]
        body = {name: values[at % 4] for at, name in enumerate(names)}
        bodies.append(json.dumps(body).encode())
    return schema, bodies


def each_us(work: Callable[[bytes], object], bodies: list[bytes], times: int = 300) -> float:
    """The CPU time of one call in µs, the least of five tries."""
    tries = []
    for _ in range(5):
        began_s = time.thread_time()
        for _ in range(times):
            for body in bodies:
                work(body)
        tries.append((time.thread_time() - began_s) / times / len(bodies) * 1e6)
    return min(tries)


def validation_by(text: str, pool: WorkerPool) -> JsonValidation:
    """The compiled check with this schema."""
    catalog = Catalog()
    catalog.schemas[1], catalog.subjects[TOPIC] = Schema(SchemaKind.JSON, text), {1: 1}
    validation = JsonValidation(TOPIC, CatalogSchemas(catalog), pool)
    validation.units(b"")
    return validation


def price_of_a_check(schema: dict[str, Any], bodies: list[bytes]) -> None:
    """Print the cost of one check, compared with decoding alone."""
    validation = validation_by(json.dumps(schema), InlinePool())

    def checked(body: bytes) -> None:
        message = Message("", body, 0)
        assert validation.units(body) <= UNITS_MAX
        assert validation.check(message, BodyHead()) is message

    decoded_us, checked_us = each_us(msgspec.json.decode, bodies), each_us(checked, bodies)
    size = round(statistics.mean(map(len, bodies)))
    print(f"one message of {size} bytes and {FIELDS} fields, µs of CPU: {checked_us:.2f} checked,")
    print(f"of which decoding {decoded_us:.2f}\n")


def avro_schema() -> str:
    """The Avro schema of the everyday messages."""
    kinds = {"string": "string", "integer": "int", "number": "double", "boolean": "boolean"}
    metadata = {"type": "map", "values": "string"}
    fields: list[dict[str, Any]] = [
        {"name": "__metadata", "type": ["null", metadata], "default": None}
    ]
    fields += [{"name": f"field_{at:02}", "type": kinds[KINDS[at % 4]]} for at in range(FIELDS)]
    return json.dumps({"type": "record", "name": "Message", "fields": fields})


def price_of_avro(bodies: list[bytes]) -> None:
    """Print the cost of one conversion to Avro, and of one back to JSON."""
    schema = avro.avro_schema(avro_schema())
    told = {"messageId": "8e03978e-40d5-43e8-bc93-6894a57f9324", "timestamp": "1790000000000"}

    def converted(body: bytes) -> bytes:
        return schema.take(body, BodyForm.JSON, told)

    stored = [converted(body) for body in bodies]
    into_us, back_us = each_us(converted, bodies), each_us(schema.to_json, stored)
    print(f"the same by an Avro schema: {into_us:.2f} into Avro, {back_us:.2f} back into JSON\n")


class Managed:
    """A node, and its topic's schema, which is saved and removed in turn."""

    def __init__(self, node: Node, schema: dict[str, Any]) -> None:
        self.node = node
        self._schema = json.dumps(schema)

    def has_schema(self, wanted: bool) -> None:
        """Save or remove the schema, and wait until publishing follows it."""
        method, body = ("POST", self._schema) if wanted else ("DELETE", "")
        answer = self._ask(self.node.management_port, method, f"/topics/{TOPIC}/schema", body)
        assert answer in (200, 201), answer
        while (
            self._ask(self.node.publish_port, "POST", f"/topics/{TOPIC}", "{}") == 400
        ) != wanted:
            time.sleep(0.01)

    def _ask(self, port: int, method: str, path: str, body: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
        connection.request(method, path, body)
        status = connection.getresponse().status
        connection.close()
        return status


def publishing(asked: argparse.Namespace, schema: dict[str, Any], bodies: list[bytes]) -> None:
    """Print what nodes publish in turn without the schema, with it, and as Avro."""
    messages = Messages("20 fields", tuple(bodies))
    print(f"{asked.connections} connections, embedded log   messages/s   CPU µs each   p50 ms")
    os.environ["HERMES_MANAGEMENT_ALLOW_SCHEMA_REMOVAL"] = "true"
    with (
        tempfile.TemporaryDirectory() as folder,
        Node("", free_ports(2), Path(folder) / "json") as node,
        Node("", free_ports(2), Path(folder) / "avro") as avro,
    ):
        node.wait_ready()
        node.create_topic("LEADER")
        node.wait_publishable()
        avro.wait_ready()
        avro.create_topic("LEADER", contentType="AVRO", schema=avro_schema())
        managed = Managed(node, schema)
        rates: dict[str, list[int]] = {WITHOUT: [], WITH: [], AS_AVRO: []}
        for number in range(asked.rounds):
            for name, of_rate in rates.items():
                if name == WITH or (name == WITHOUT and number):
                    managed.has_schema(name == WITH)
                of = avro if name == AS_AVRO else node
                target = Target(of.publish_port, of.process.pid, "http1", messages, 1)
                row = run(Load(target, asked.connections, asked.seconds))
                assert not row["errors"], row["errors"]
                of_rate.append(row["messages_per_s"])
                cpu_us = row["cpu_ms_per_1000"]
                figures = f"{row['messages_per_s']:>10,} {cpu_us:>13.1f} {row['p50_ms']:>8.2f}"
                print(f"{name:<31}{figures}", flush=True)
    without = statistics.median(rates[WITHOUT])
    ratios = [f"{name} {statistics.median(rates[name]) / without:.2f}" for name in (WITH, AS_AVRO)]
    print(f"of without: {', '.join(ratios)}\n")


def _schema(rng: random.Random, depth: int) -> Any:
    if depth <= 0 or rng.random() < 0.1:
        leaves = (
            True,
            {"type": rng.choice(KINDS)},
            {"pattern": rng.choice(PATTERNS)},
            {"enum": [str(at) for at in range(rng.choice((2, 2_000)))]},
            {"uniqueItems": True},
            {"multipleOf": rng.choice((1e-300, 3, 0.1))},
            {"$ref": rng.choice(("#", "#/$defs/a", "#/$defs/b"))},
        )
        return rng.choice(leaves)
    many = [_schema(rng, depth - 1) for _ in range(rng.choice((1, 2, 2, 8)))]
    one = many[0]
    shapes: tuple[dict[str, Any], ...] = (
        {"allOf": many},
        {"anyOf": many},
        {"oneOf": many},
        {"not": one},
        {"items": one, "uniqueItems": rng.random() < 0.2},
        {"prefixItems": many, "items": one},
        {"contains": one},
        {"properties": {"a": one, "b": many[-1]}},
        {"properties": {"a": one}, "additionalProperties": many[-1]},
        {"patternProperties": {"a": one, ".*": many[-1]}},
        {"propertyNames": one},
        {"if": one, "then": many[-1], "else": many[0]},
        {"properties": {f"k{at}": one for at in range(rng.choice((5, 60)))}},
        {"required": [f"k{at}" for at in range(rng.choice((5, 60)))]},
        {"allOf": [{"$ref": "#/$defs/a"}] * rng.choice((2, 30))},
    )
    return {**rng.choice(shapes), **rng.choice(shapes)}


def _text(rng: random.Random) -> str:
    while True:
        schema = {
            "$defs": {"a": _schema(rng, 2), "b": _schema(rng, 1)},
            "allOf": [_schema(rng, rng.choice((1, 1, 2, 2, 3)))],
        }
        size, pieces = 0, []
        for piece in json.JSONEncoder().iterencode(schema):
            size += len(piece)
            if size > SCHEMA_BYTES_MAX:
                break
            pieces.append(piece)
        else:
            return "".join(pieces)


def _value(rng: random.Random, size: int) -> str:
    inner = max(size // rng.choice((2, 10, 100)), 1)
    count = max(size // (inner + 4), 1)
    match rng.randrange(7):
        case 0:
            return '"' + rng.choice(("a", "aab", "x", "é")) * max(size // 3, 1) + '"'
        case 1:
            return "[" + ",".join(["1"] * max(size // 2, 1)) + "]"
        case 2:
            depth = min(size // 6 + 1, rng.choice((10, 100, 500)))
            begin, end = rng.choice((('{"a":', "}"), ("[", "]"), ('{"b":[', "]}")))
            return begin * depth + "1" + end * depth
        case 3:
            return "{" + ",".join(f'"k{at}":{at}' for at in range(max(size // 8, 1))) + "}"
        case 4:
            return "[" + ",".join(["{}"] * max(size // 3, 1)) + "]"
        case _ if size > 20:
            return "[" + ",".join(_value(rng, inner) for _ in range(min(count, 20))) + "]"
        case _:
            return str(rng.choice((1, -5, 1e300, 3.7)))


def hostile(cases: int, seed: int) -> None:
    """Print the longest times on the loop, and the results of the cases."""
    rng = random.Random(seed)
    pool: WorkerPool = InlinePool()
    became: Counter[str] = Counter()
    longest = {"adopting": 0.0, "checking": 0.0}

    validation = validation_by("true", pool)

    def timed(kind: str, work: Callable[[], Any]) -> Any:
        took_s, result = _thread_s(work)
        if took_s > longest[kind]:
            longest[kind] = max(longest[kind], min([took_s, *(_thread_s(work)[0] for _ in "12")]))
        return result

    gc.disable()  # A garbage collection is not work on a schema.
    for number in range(cases):
        if number % BODIES == 0:
            gc.collect()
            validation = timed("adopting", partial(validation_by, _text(rng), pool))
        body = _value(rng, rng.choice((10, 500, 5_000, 30_000, 60_000, 300_000))).encode()
        if validation.units(body) > UNITS_MAX:
            became["checked beside the loop"] += 1
        else:
            message = Message("", body, 0)
            outcome = timed("checking", partial(validation.check, message, BodyHead()))
            fits = outcome is message
            became["fits" if fits else f"{outcome.status} {outcome.code.name}"] += 1
    gc.enable()
    print(f"{cases:,} hostile pairs of schema and message, ms of CPU on the loop at most:")
    print(f"adopting {longest['adopting'] * 1e3:.1f}, checking {longest['checking'] * 1e3:.1f}")
    print(", ".join(f"{name}: {count:,}" for name, count in became.most_common()))


def _thread_s(work: Callable[[], Any]) -> tuple[float, Any]:
    began_s = time.thread_time()
    result = work()
    return time.thread_time() - began_s, result


def main() -> None:
    """Print all three parts."""
    parser = argparse.ArgumentParser(description="The price of schemas at publishing.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--cases", type=int, default=3_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    schema, bodies = everyday()
    price_of_a_check(schema, bodies)
    price_of_avro(bodies)
    publishing(asked, schema, bodies)
    hostile(asked.cases, asked.seed)


if __name__ == "__main__":
    main()
