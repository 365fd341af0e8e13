"""Decides which dependencies prevent a node from being ready. Pure; docs/adr/0022 gives the
reasons.
"""

from collections.abc import Mapping

from msgspec import Struct

from hermes_actors.status.dependencies import Dependency


class NodeFacts(Struct, frozen=True, kw_only=True):
    """The state of a node's dependencies. A text says why a dependency does not work; empty string
    if it does.

    `metadata`: nothing can be read. `standing_in`: the metadata is another datacentre's. `behind`:
    changes of other datacentres may be missing, for a limited time; `lacking`: the same after that
    time. `log`: it cannot be used now; `log_lost`: it stores nothing before the node's next start.
    `spool` and `coordination` are None if the node has none. `traffic` are the findings of
    publishing's readiness check. `remote_logs` are the other datacentres' logs, `duties` the node's
    tasks for its datacentre.
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
    """The node's dependencies, the ones needed for readiness first.

    A publishing node is ready while it can accept messages, because its spool keeps what its log
    does not take. Consuming is not traffic that could go elsewhere, so coordination matters only on
    nodes that only consume, where readiness paces a rolling update. Another datacentre never
    matters: otherwise all nodes would leave their load balancer at once.
    """
    is_kept = facts.publishes and facts.spool == ""
    metadata = facts.metadata or facts.standing_in or facts.behind or facts.lacking
    found = [
        Dependency(
            "metadata",
            metadata,
            # Shown as needed while it works; missing changes matter only on some nodes.
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
