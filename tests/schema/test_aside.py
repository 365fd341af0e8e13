"""Costly questions in a process of their own: answered, ended in time, and asked again."""

import json
import os
import signal

import pytest
import trio

from hermes_actors.actors.mailbox import open_mailbox
from hermes_actors.errors import ErrorCode, HermesError, Refused, Unavailable
from hermes_actors.model.schema import Schema, SchemaKind
from hermes_actors.schema.aside import CheckProcess, Costly
from hermes_actors.schema.avro import BodyForm
from hermes_actors.schema.questions import (
    Compiles,
    Converts,
    Decodes,
    Fits,
    Question,
    Reads,
)

pytestmark = pytest.mark.live

NUMBERS = json.dumps({"type": "array", "items": {"type": "integer"}})


def doubling(levels: int) -> str:
    """A schema that applies 2^levels parts to one value."""
    definitions: dict = {
        f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(levels)
    }
    definitions[f"d{levels}"] = {"type": "string"}
    return json.dumps({"$defs": definitions, "$ref": "#/$defs/d0"})


class Asker:
    def __init__(self, process: CheckProcess, ref) -> None:
        self.process = process
        self._ref = ref

    @property
    def pid(self) -> int:
        process = self.process._process
        assert process is not None, "it has been asked"
        return process.pid

    async def ask(self, question: Question, cpu_s: float = 5.0) -> HermesError | None:
        answered, answers = trio.Event(), []

        def done(error: HermesError | None) -> None:
            answers.append(error)
            answered.set()

        self._ref.tell(Costly(question, cpu_s, done))
        await answered.wait()
        return answers[0]


@pytest.fixture
async def asker():
    ref, inbox = open_mailbox(8)
    process = CheckProcess()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process.run, inbox)
        yield Asker(process, ref)
        inbox.close()


async def test_questions_are_answered_in_one_process(asker):
    assert await asker.ask(Fits(NUMBERS, b"[1, 2]")) is None
    first = asker.pid
    refused = await asker.ask(Fits(NUMBERS, b'[1, "x"]'))
    assert isinstance(refused, Refused)
    assert refused.message == "Invalid message: [1] must be an integer, not a string"
    assert await asker.ask(Compiles(Schema(SchemaKind.JSON, NUMBERS))) is None
    malformed = await asker.ask(Compiles(Schema(SchemaKind.JSON, '{"type": "strin"}')))
    assert malformed is not None
    assert malformed.code is ErrorCode.FORMAT_ERROR
    numbers, anything = Schema(SchemaKind.JSON, NUMBERS), Schema(SchemaKind.JSON, "{}")
    assert await asker.ask(Reads(anything, numbers)) is None
    assert isinstance(await asker.ask(Reads(numbers, anything)), Refused)
    assert asker.pid == first


async def test_avro_is_converted_and_read_in_the_process_which_outlives_what_nests_too_deep(asker):
    kind = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}
    schema = json.dumps(kind)
    stored = await asker.ask(Converts(schema, BodyForm.JSON, b'{"n": {"n": null}}', {}))
    assert stored == b"\x02\x00"
    first = asker.pid
    assert await asker.ask(Decodes(schema, stored)) == b'{"n":{"n":null}}'
    deep = await asker.ask(Decodes(schema, b"\x02" * 1_000_000))
    assert isinstance(deep, Refused)
    assert "nested too deep" in deep.message
    assert asker.pid == first


async def test_a_body_larger_than_a_pipe_is_asked_whole(asker):
    body = json.dumps(list(range(200_000))).encode()
    assert await asker.ask(Fits(NUMBERS, body)) is None
    assert await asker.ask(Fits(NUMBERS, body[:-1] + b',"x"]')) is not None


async def test_what_takes_more_cpu_than_it_may_is_refused_and_the_next_is_asked(asker):
    error = await asker.ask(Fits(doubling(40), b'"x"'), cpu_s=0.1)
    assert isinstance(error, Refused)
    assert "more than 100 ms of CPU" in error.message
    assert await asker.ask(Fits(NUMBERS, b"[1]")) is None


async def test_avro_schemas_that_take_long_to_be_compared_are_refused_in_time(asker):
    """Each of the one's 700 records is compared with each of the other's."""

    def many(name: str) -> Schema:
        fields = [{"name": "a", "type": "int"}]
        records = [{"type": "record", "name": f"r{at}", "fields": fields} for at in range(700)]
        body = {"type": "record", "name": name, "fields": [{"name": "u", "type": records}]}
        return Schema(SchemaKind.AVRO, json.dumps(body))

    error = await asker.ask(Reads(many("one"), many("one")), cpu_s=0.2)
    assert isinstance(error, Refused)
    assert "more than 200 ms of CPU" in error.message
    assert await asker.ask(Compiles(many("one"))) is None


async def test_a_process_that_is_killed_is_not_the_messages_fault(asker):
    assert await asker.ask(Fits(NUMBERS, b"[1]")) is None
    os.kill(asker.pid, signal.SIGSTOP)
    async with trio.open_nursery() as nursery:
        answers = []

        async def ask() -> None:
            answers.append(await asker.ask(Fits(NUMBERS, b"[1]")))

        nursery.start_soon(ask)
        await trio.sleep(0.05)
        os.kill(asker.pid, signal.SIGKILL)
    assert isinstance(answers[0], Unavailable)
    assert await asker.ask(Fits(NUMBERS, b"[1]")) is None


async def test_a_terminals_interrupt_leaves_the_process_to_its_node(asker):
    assert await asker.ask(Fits(NUMBERS, b"[1]")) is None
    first = asker.pid
    os.kill(first, signal.SIGINT)
    assert await asker.ask(Fits(NUMBERS, b"[1]")) is None
    assert asker.pid == first


async def test_the_process_ends_with_whoever_asks():
    ref, inbox = open_mailbox(8)
    process = CheckProcess()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process.run, inbox)
        asker = Asker(process, ref)
        assert await asker.ask(Fits(NUMBERS, b"[1]")) is None
        pid = asker.pid
        inbox.close()
    with trio.fail_after(10):
        while _is_alive(pid):  # noqa: ASYNC110 -- nobody tells of another process's end
            await trio.sleep(0.01)


async def test_what_nobody_waits_for_is_not_asked(asker):
    answers: list[HermesError | None] = []
    late = Costly(Fits(doubling(40), b'"x"'), 30.0, answers.append, lambda: False)
    asker._ref.tell(late)
    assert await asker.ask(Fits(NUMBERS, b"[1]")) is None
    assert isinstance(answers[0], Unavailable)


async def test_whoever_waits_when_the_node_stops_is_told_so():
    ref, inbox = open_mailbox(8)
    answers: list[HermesError | None] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(CheckProcess().run, inbox)
        for _ in range(3):
            ref.tell(Costly(Fits(doubling(40), b'"x"'), 30.0, answers.append))
        await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    assert len(answers) == 3
    assert all(isinstance(each, Unavailable) for each in answers)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_compiling_a_large_schema_takes_nothing_from_what_a_message_may_take(asker):
    held = ["null", {"type": "array", "items": ["null", "int", "string"]}]
    fields = [{"name": f"f{at}", "type": held, "default": None} for at in range(1_500)]
    text = json.dumps({"type": "record", "name": "T", "fields": fields})
    stored = await asker.ask(Converts(text, BodyForm.JSON, b"{}", {}), 0.1)
    assert isinstance(stored, bytes)
    os.kill(asker.pid, signal.SIGKILL)
    assert isinstance(await asker.ask(Fits(NUMBERS, b"[]")), Unavailable)
    assert isinstance(await asker.ask(Decodes(text, stored), 0.1), bytes)
