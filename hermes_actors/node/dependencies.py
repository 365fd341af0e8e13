"""Which of a node's dependencies keep it from being ready. Pure; docs/adr/0022 says why so."""

from collections.abc import Mapping

from msgspec import Struct

from hermes_actors.status.dependencies import Dependency


class NodeFacts(Struct, frozen=True, kw_only=True):
    """How a node's dependencies fare, in words: each says why it does not work, "" when it does.

    `metadata` is that nothing can be read, `standing_in` that what is read is another datacentre's,
    `behind` that something of theirs may be missing, for a bounded time, and `lacking` the same
    when that is over. `log` is that it cannot be used now, `log_lost` that it takes nothing more
    before the node's next start. `spool` and `coordination` are None where the node has none.
    `traffic` is what the readiness check of publishing has found. `remote_logs` are the other
    datacentres', `duties` what the node does beside its work.
    """

    publishes: bool
    consumes: bool
    metadata: str = ""
    standing_in: str = ""
    behind: str = ""
    lacking: str = ""
    log: str = ""
    log_lost: str = ""
    spool: str | None = None
    traffic: tuple[Dependency, ...] = ()
    coordination: str | None = None
    remote_logs: Mapping[str, str] = {}
    duties: Mapping[str, str] = {}
    loop: str = ""


def dependencies_of(facts: NodeFacts) -> list[Dependency]:
    """The node's dependencies, those first without which it is not ready.

    A node that publishes is ready while it can take messages: what its log does not take its spool
    keeps. Consuming is no traffic that could be sent elsewhere, so coordination counts on nodes
    that only consume, where readiness tells a rolling update when to go on. Another datacentre
    never counts: all nodes would leave their load balancer at once.
    """
    is_kept = facts.publishes and facts.spool == ""
    metadata = facts.metadata or facts.standing_in or facts.behind or facts.lacking
    found = [
        Dependency(
            "metadata",
            metadata,
            # Shown as needed while it is well; what may be missing counts on some nodes only.
            not metadata
            or bool(facts.metadata)
            or (bool(facts.standing_in) and not is_kept)
            or (bool(facts.behind) and facts.publishes),
        ),
        Dependency("log", facts.log_lost or facts.log, bool(facts.log_lost) or not is_kept),
    ]
    if facts.spool is not None:
        found.append(Dependency("spool", facts.spool, bool(facts.log)))
    found += facts.traffic
    if facts.coordination is not None:
        needed = facts.consumes and not facts.publishes
        found.append(Dependency("coordination", facts.coordination, needed))
    found += [Dependency(f"log {dc}", trouble) for dc, trouble in facts.remote_logs.items()]
    found += [Dependency(duty, trouble) for duty, trouble in facts.duties.items()]
    return [*found, Dependency("event loop", facts.loop)]
