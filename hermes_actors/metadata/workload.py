"""The registers with which operators steer the balancer: `constraint/…` for a topic or a
subscription, `drain/<dc>/<node>` for a node.

A constraint belongs to a name, not to an incarnation: it still holds when a topic is created again.
"""

import msgspec

from hermes_actors.metadata.bodies import UndecodableBody, decode_body
from hermes_actors.metadata.keys import Key, key
from hermes_actors.model.names import SubscriptionName, TopicName
from hermes_actors.model.workload import CONSUMERS_MIN, Constraints, NodeDrain

CONSTRAINT = "constraint"
DRAIN = "drain"


def constraint_key(name: TopicName | SubscriptionName) -> str:
    """The key of a constraint for a topic or a subscription."""
    if isinstance(name, TopicName):
        return key(CONSTRAINT, name.group, name.name)
    return key(CONSTRAINT, name.topic.group, name.topic.name, name.name)


def drain_key(dc: str, node: str) -> str:
    """The key of a node's drain: it must own nothing."""
    return key(DRAIN, dc, node)


def constrained_by(parsed: Key) -> str | None:
    """`group.topic` or `group.topic$subscription` in the key of a constraint; None for other
    keys.
    """
    if parsed.kind != CONSTRAINT or len(parsed.names) not in (2, 3):
        return None
    topic = TopicName(*parsed.names[:2])
    return str(SubscriptionName(topic, parsed.names[2]) if parsed.names[2:] else topic)


def drained_by(parsed: Key) -> tuple[str, str] | None:
    """Datacentre and node in the key of a drain; None for other keys."""
    if parsed.kind != DRAIN or len(parsed.names) != 2:
        return None
    return parsed.names[0], parsed.names[1]


def constraint_body(constraints: Constraints) -> bytes:
    """Encode a constraint."""
    return msgspec.json.encode(constraints)


def drain_body(drain: NodeDrain) -> bytes:
    """Encode a node's drain."""
    return msgspec.json.encode(drain)


def decode_constraint(body: bytes) -> Constraints:
    """Decode a constraint. Raises UndecodableBody, also for an impossible number of consumers."""
    constraints = decode_body(body, Constraints)
    if constraints.consumers_number < CONSUMERS_MIN:
        raise UndecodableBody(f"consumersNumber is {constraints.consumers_number}")
    return constraints


def decode_drain(body: bytes) -> NodeDrain:
    """Decode a node's drain. Raises UndecodableBody."""
    return decode_body(body, NodeDrain)
