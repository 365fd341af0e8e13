"""An operator's instructions to the balancer: how many nodes consume something, and which nodes
must own nothing.

Field names and JSON shape of a constraint are Hermes' wire format; draining is not in Hermes.
"""

from msgspec import Struct

CONSUMERS_MIN = 1
REASON_CHARACTERS_MAX = 1_024


class Constraints(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """How many nodes must consume a subscription, or each subscription of a topic, and why."""

    consumers_number: int
    reason: str = ""


class NodeDrain(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """From `since_ms` (epoch) on a node must own nothing. `by` is the caller's name."""

    since_ms: int = 0
    by: str = ""
    reason: str = ""
