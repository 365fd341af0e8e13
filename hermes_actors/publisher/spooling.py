"""The use that publishing makes of the node's spool, if there is one."""

from collections.abc import Callable

from hermes_actors.config import Config
from hermes_actors.config.fallback import SpoolConfig
from hermes_actors.fallback.spool.spool import Spool
from hermes_actors.model.topic import Topic


def spool_of(spool: Spool | None, config: SpoolConfig) -> Callable[[Topic], Spool | None]:
    """Tells a topic's spool: none when another datacentre takes what this one's log does not,
    unless the operator wants both, or messages of the topic wait: newer ones with their keys must
    not overtake them.
    """

    def of(topic: Topic) -> Spool | None:
        is_wanted = config.for_fallback_topics or not topic.fallback_to_remote_datacenter_enabled
        return spool if is_wanted or (spool is not None and spool.has(topic.name)) else None

    return of


def reserve_ms(spool: Spool | None, config: Config) -> int:
    """How long before a publish's time limit keeping it begins: the log has half of it at least."""
    if spool is None:
        return 0
    return min(config.spool.reserve_ms, config.frontend.idle_timeout_ms // 2)
