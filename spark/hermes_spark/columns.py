"""The columns of stored records in a job, the same for every kind of log."""

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
"""Each column and its type. `topic` is the topic's name in the log without the namespace.
`message_id` is the record's place if it has no id, as in the broker. `published_dc` is the
publisher's datacentre and `via` the message's route (local, fallback, hedge, spool), null if
unknown. `headers` are all of them, in order.
"""

COLUMNS = tuple(TYPES)


def schema_of(columns: Sequence[str] = COLUMNS) -> str:
    """These columns as a Spark schema."""
    return ", ".join(f"{name} {TYPES[name]}" for name in columns)


STORED = schema_of()
"""All columns, for `createDataFrame`."""

_PRINTABLE = rf"^[[^\p{{C}}\p{{Z}}] ]{{1,{ID_CHARACTERS_MAX}}}\z"
_KAFKA_HEADERS = "ARRAY<STRUCT<key: STRING, value: BINARY>>"


def from_kafka(rows: Any, dc: str, prefix: str, columns: Sequence[str] = COLUMNS) -> Any:
    """The common columns from rows of Spark's Kafka source.

    `prefix` starts the topics' names in the log: the namespace and its separator, or an empty
    string. Columns from headers are available only if the source was told to read headers.
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
    """The text of the last header with that name; null if there is none, it is empty, or it is not
    one of the broker's.

    If the headers are the three that the broker writes, their places are known. Only otherwise the
    array is searched, which costs more than everything else in a row.
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
    """The id in Hermes' envelope around a body, which need not be JSON itself."""
    from pyspark.sql import functions as f

    text = f.col("value").cast("string")
    mark = '"metadata":'
    # The parser stops at the end of the metadata, so the rest is never parsed.
    metadata = f.substring_index(text, mark, 1)
    metadata = f.substr(text, f.length(metadata) + len(mark) + 1)
    ids = [
        f.nullif(f.get_json_object(metadata, f"$.{name}"), f.lit(""))
        for name in ("id", "messageId")
    ]
    is_enveloped = published_dc.isNull() & f.contains(text, f.lit('"_w":true'))
    return f.when(is_enveloped & f.contains(text, f.lit(mark)), f.coalesce(*ids))
