"""Derives a message's id from its publisher's key: the same on every node and after each
restart.
"""

import uuid  # noqa: TID251 -- version 5 draws nothing

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:hermes_actors:message")


def keyed_id(topic: str, key: str) -> str:
    """The id of a message published to `group.topic` with this key: a UUID version 5 in a namespace
    of the topic, so that equal keys in different topics give different ids.
    """
    return str(uuid.uuid5(uuid.uuid5(_NAMESPACE, topic), key))
