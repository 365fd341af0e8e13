"""The bodies posted to create a topic and a subscription: the fields that each must have."""

from typing import Any

_OWNER = {"source": "Plaintext", "id": "team"}


def topic_body(name: str, **fields: Any) -> dict[str, Any]:
    """A JSON topic whose messages are kept for a day; `name` is the full one, `group.topic`."""
    return {
        "name": name,
        "description": "",
        "owner": _OWNER,
        "contentType": "JSON",
        "retentionTime": {"duration": 1},
        **fields,
    }


def subscription_body(topic: str, name: str, endpoint: str, **fields: Any) -> dict[str, Any]:
    """A subscription to the topic of that full name; it is delivered as by default."""
    return {
        "topicName": topic,
        "name": name,
        "endpoint": endpoint,
        "description": "",
        "owner": _OWNER,
        **fields,
    }
