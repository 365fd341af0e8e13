"""The settings of delivery beside pushing: shares of nodes, recipients, filters, dead letters."""

import typing

from msgspec import Struct


class BalancerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """How a datacentre's subscriptions are divided among its consuming nodes; the same on each.

    `cores` is how much CPU this node has for its share of the work, at most; 0: one core, for it
    runs in one thread. What others leave of it is measured.
    """

    strategy: typing.Literal["weighted", "count"] = "weighted"
    consumers_per_subscription: int = 2
    tasks_per_node_max: int = 1_000
    interval_ms: int = 30_000
    stabilization_window_ms: int = 1_800_000
    cores: float = 0.0


class DeadLettersConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Dead letters. A group's topic is made with `partitions` when its first letter comes."""

    enabled: bool = True
    retention_ms: int = 604_800_000
    partitions: int = 4


class FiltersConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """CPU time for one message, over all filters of a subscription and all values that they look
    at: on the loop, and in a thread for what wants more. What that does not suffice for settles
    the message, as a dead letter.
    """

    loop_cpu_ms: int = 5
    thread_cpu_ms: int = 100


class RecipientsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The recipients of messages. `resolver` is a plug-in, `module:function`; "" for what is built
    in. At most `addresses_max` for each endpoint, of which `pushes_max` get one message at the same
    time.
    """

    resolver: str = ""
    addresses_max: int = 100
    pushes_max: int = 20
    dns_ttl_ms: int = 5_000
