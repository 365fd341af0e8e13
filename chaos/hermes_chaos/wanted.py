"""Request bodies that create a topic and a subscription, with all required fields."""

from typing import Any

_OWNER = {"source": "Plaintext", "id": "team"}


def topic_body(name: str, **fields: Any) -> dict[str, Any]:
    """A JSON topic whose messages are kept for a day. `name` is the full name, `group.topic`."""
    return {
        "name": name,
        "description": "",
        "owner": _OWNER,
        "contentType": "JSON",
        "retentionTime": {"duration": 1},
        **fields,
    }


def subscription_body(topic: str, name: str, endpoint: str, **fields: Any) -> dict[str, Any]:
    """A subscription to the topic with that full name, with default delivery settings."""
    return {
        "topicName": topic,
        "name": name,
        "endpoint": endpoint,
        "description": "",
        "owner": _OWNER,
        **fields,
    }
