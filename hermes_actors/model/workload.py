"""The balancer's instructions: how many nodes consume something, and which nodes are to be empty.

Field names and JSON shape of a constraint are Hermes' wire; draining is ours.
"""

from msgspec import Struct

CONSUMERS_MIN = 1
REASON_CHARACTERS_MAX = 1_024


class Constraints(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """How many nodes are to consume a subscription, or each one of a topic, and why."""

    consumers_number: int
    reason: str = ""


class NodeDrain(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """A node is to own nothing from `since_ms` (epoch) on. `by` is the caller's name."""

    since_ms: int = 0
    by: str = ""
    reason: str = ""
