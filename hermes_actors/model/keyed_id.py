"""A message's id from its publisher's own key: equal on every node and after each restart."""

import hashlib

# This project's own namespace: the UUIDv5 of the URL "urn:hermes_actors:message".
_NAMESPACE = bytes.fromhex("5da4919036a65701bc2543f3031220d1")


def keyed_id(topic: str, key: str) -> str:
    """The id of the message that was published to `group.topic` with this key: a UUID version 5
    whose namespace is that of the topic, so that topics do not share keys.
    """
    digest = _named(_named(_NAMESPACE, topic), key).hex()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:]}"


def _named(namespace: bytes, name: str) -> bytes:
    """RFC 9562, 5.5: SHA-1 over namespace and name, with version and variant set."""
    digest = bytearray(hashlib.sha1(namespace + name.encode(), usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    return bytes(digest)
