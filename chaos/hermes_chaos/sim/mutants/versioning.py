"""Seeded bugs of Avro topics: the versions in which messages are written and read."""

from hermes_actors.consumer.delivery import bodies
from hermes_actors.model.schema import WriterSchema
from hermes_actors.publisher.router import Routes
from hermes_actors.schema.reading import AvroReader
from hermes_chaos.sim.mutants.mutant import WHOLE, Mutant

_text_of = AvroReader.text_of


def _newest_text(self: AvroReader, topic: str, _written: WriterSchema) -> str:
    return _text_of(self, topic, self.newest(topic))


def _stay_with_it(_self: Routes, _name: str) -> None:
    pass


VERSIONING = (
    Mutant(
        "read-by-the-newest",
        "a message is read by the newest version of its topic's schema",
        ((AvroReader, "text_of", _newest_text),),
    ),
    Mutant(
        "old-schema-stays",
        "a frontend goes on with the version of the schema that it knew first",
        ((Routes, "renew_schema", _stay_with_it),),
        seed=3,
    ),
    Mutant(
        "late-schema-given-up",
        "a message is given up where it comes before the version that it is written in",
        ((bodies, "PATIENCE_S", 0.0),),
        seed=3,
        shape=WHOLE,
    ),
)
