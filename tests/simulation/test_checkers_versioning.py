"""The checker of the topic of AVRO, and what reads its messages, can fail."""

import io
import json

import fastavro
import pytest

from hermes_actors.model.schema import Schema, SchemaKind, schema_id
from hermes_actors.model.topic import Ack
from hermes_chaos.sim.checkers.versioning import WrittenVersionsAreRead
from hermes_chaos.sim.history.avro import VERSIONS, as_published, read_avro, schema_of
from hermes_chaos.sim.history.events import Healed, Published, Stored
from hermes_chaos.sim.workload.plans import VISITS
from hermes_chaos.sim.workload.subject import Audience, Subject

READER = f"{VISITS.name}$guide"
SUBJECT = Subject({VISITS.name: Ack.ALL}, [Audience(READER, VISITS.name, "guide")])
BODY = '{"serial": 7, "filling": "żółć"}'.encode()


def id_of(version: int) -> int:
    return schema_id(Schema(SchemaKind.AVRO, schema_of(version)))


def written(version: int) -> bytes:
    document = {"serial": 7, "filling": "żółć", "__metadata": {"id": "1"}}
    avro = io.BytesIO()
    fastavro.schemaless_writer(avro, json.loads(schema_of(version)), document)
    return avro.getvalue()


def stored(version: int, message_id: str = "id7") -> Stored:
    return Stored(("dc1", "t", 0), 0, message_id, BODY, VISITS.name, version=version)


@pytest.mark.parametrize("version", range(1, VERSIONS + 1))
def test_avro_of_each_version_reads_as_it_was_published(version: int) -> None:
    read = read_avro(written(version), id_of(version))
    assert as_published(read) == (BODY, version)
    # A subscriber of JSON gets the same from the product, in its own form.
    compact = json.dumps(json.loads(read), separators=(",", ":")).encode()
    assert as_published(compact) == (BODY, version)


def test_avro_that_another_version_has_written_does_not_read_as_it_was_published() -> None:
    for version in range(1, VERSIONS + 1):
        for other in {*range(1, VERSIONS + 1)} - {version}:
            assert as_published(read_avro(written(version), id_of(other)))[0] != BODY


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"serial": 7, "filling": "x", "__metadata": null, "added2": 2}',
        b'{"serial": 7, "added2": 2, "filling": "x"}',
        b'{"added3": 3, "serial": 7, "filling": "x"}',
    ],
)
def test_what_no_version_would_say_is_of_none(body: bytes) -> None:
    assert as_published(body) == (body, 0)


def test_what_is_no_avro_of_that_schema_stays_as_it_is() -> None:
    for body, written_with in (
        (b"{}", id_of(1)),
        (written(1) + b"\0", id_of(1)),
        (written(1), 12),
    ):
        assert read_avro(body, written_with) == body


@pytest.mark.parametrize(
    ("version", "healed_s", "began_s", "is_found"),
    [(2, 1, 9, False), (1, 1, 9, True), (1, 1, 6, False), (1, 8, 9, False), (1, 6.5, 9, True)],
)
def test_a_version_is_used_once_it_was_saved_and_all_is_healed(
    version: int, healed_s: float, began_s: float, is_found: bool
) -> None:
    checker = WrittenVersionsAreRead(SUBJECT)
    checker.saving(2)
    checker.saved(2, 4)
    published = Published(7, VISITS.name, BODY, "dc1-n1", 201, "id7", began_s=began_s)
    for event in (stored(version), Healed(healed_s), published):
        checker.watch(event)
    assert bool(checker.violations) is is_found
