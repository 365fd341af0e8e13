"""The columns that every stored record has in a job, whichever log keeps it."""

from collections.abc import Sequence
from typing import Any

from hermes_actors.model.message import ID_CHARACTERS_MAX

TYPES = {
    "dc": "STRING NOT NULL",
    "topic": "STRING NOT NULL",
    "partition": "INT NOT NULL",
    "offset": "BIGINT NOT NULL",
    "timestamp_ms": "BIGINT NOT NULL",
    "key": "BINARY",
    "value": "BINARY",
    "message_id": "STRING NOT NULL",
    "published_dc": "STRING",
    "via": "STRING",
    "headers": "ARRAY<STRUCT<name: STRING, value: BINARY>>",
}
"""Each column and its type. `topic` is the log's name of it without the namespace; `message_id` is
the record's place where it has no id, as the broker calls it; `published_dc` is the publisher's
datacentre and `via` the way that the message took (local, fallback, hedge, spool), null where
nothing says so; `headers` are all of them, in order.
"""

COLUMNS = tuple(TYPES)


def schema_of(columns: Sequence[str] = COLUMNS) -> str:
    """These columns as a schema of Spark."""
    return ", ".join(f"{name} {TYPES[name]}" for name in columns)


STORED = schema_of()
"""All of them, for `createDataFrame`."""

_PRINTABLE = rf"^[[^\p{{C}}\p{{Z}}] ]{{1,{ID_CHARACTERS_MAX}}}\z"
_KAFKA_HEADERS = "ARRAY<STRUCT<key: STRING, value: BINARY>>"


def from_kafka(rows: Any, dc: str, prefix: str, columns: Sequence[str] = COLUMNS) -> Any:
    """These common columns from the rows of Spark's Kafka source.

    `prefix` is what the log's names of topics begin with: the namespace and its separator, or "".
    What the headers say can be asked for only where the source was told to read them.
    """
    from pyspark.sql import functions as f

    of_source = {
        "dc": f.lit(dc),
        "topic": f.substr("topic", f.lit(len(prefix) + 1)) if prefix else f.col("topic"),
        "timestamp_ms": f.unix_millis("timestamp"),
    }
    if "headers" in rows.columns:
        headers = f.coalesce(f.col("headers"), f.expr(f"CAST(array() AS {_KAFKA_HEADERS})"))
        published_dc = _header(headers, 1, "dc")
        of_source |= {
            "message_id": f.coalesce(
                _header(headers, 0, "id"),
                _enveloped_id(published_dc),
                # Of the topic as the log calls it.
                f.concat_ws(":", f.lit(dc), "topic", "partition", "offset"),
            ),
            "published_dc": published_dc,
            "via": _header(headers, 2, "via"),
            "headers": headers.cast(TYPES["headers"]),
        }
    return rows.select(*(of_source.get(name, f.col(name)).alias(name) for name in columns))


def _header(headers: Any, place: int, name: str) -> Any:
    """The text of the last header of that name; null for none, an empty one, or what others wrote
    there.

    Looked for only where the three that the broker writes are not all there is: searching an array
    costs more than all else of a row.
    """
    from pyspark.sql import functions as f

    is_plain = f.size(headers) == 3
    for at, plain in enumerate(("id", "dc", "via")):
        is_plain = is_plain & (f.get(headers, f.lit(at))["key"] == plain)
    sought = f.filter(headers, lambda each: each["key"] == name)
    sought = f.try_validate_utf8(f.try_element_at(sought, f.lit(-1))["value"].cast("string"))
    plain = f.try_validate_utf8(f.get(headers, f.lit(place))["value"].cast("string"))
    is_ours = sought.rlike(_PRINTABLE)
    return f.nullif(f.when(is_plain, plain).otherwise(f.when(is_ours, sought)), f.lit(""))


def _enveloped_id(published_dc: Any) -> Any:
    """The id in the envelope that Hermes writes around a body, which need not be JSON itself."""
    from pyspark.sql import functions as f

    text = f.col("value").cast("string")
    mark = '"metadata":'
    # The parser stops where the metadata ends: what follows is never looked at.
    metadata = f.substring_index(text, mark, 1)
    metadata = f.substr(text, f.length(metadata) + len(mark) + 1)
    ids = [
        f.nullif(f.get_json_object(metadata, f"$.{name}"), f.lit(""))
        for name in ("id", "messageId")
    ]
    is_enveloped = published_dc.isNull() & f.contains(text, f.lit('"_w":true'))
    return f.when(is_enveloped & f.contains(text, f.lit(mark)), f.coalesce(*ids))
