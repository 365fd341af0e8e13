"""Tells who runs what, why, and what the planner would change now; changes nothing."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import trio

from hermes_actors.coordination.plan_views import Proposal, plan_view_in_steps
from hermes_actors.coordination.restarting import restarting_since
from hermes_actors.coordination.room import (
    DEFAULT_LIMITS,
    OwnershipLimits,
    drained,
    is_drain_ignored,
)
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.tally import PlannerWeights, tally_in_steps
from hermes_actors.coordination.views import (
    MemberView,
    SubscriptionView,
    member_views,
    move_view,
    skew_of_members,
    subscription_view,
    unassigned_reason,
)
from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.management.balancing.explaining import (
    Subject,
    departure_view,
    is_about,
    reasons_of_node,
    reasons_of_subscription,
    resignation_view,
)
from hermes_actors.management.balancing.placements import Followed
from hermes_actors.metadata.registry import Metadata
from hermes_actors.runtime.turns import each_in_turns, in_turns


def unweighed(_state: CoordinationState) -> PlannerWeights:
    """Return no weights, for a node that knows no planner."""
    return PlannerWeights()


class DryRunPlanner(Protocol):
    """The planner of one datacentre, asked what it would do."""

    async def propose(self, state: CoordinationState) -> Proposal:
        """Return what the planner would change now; a trio coroutine. Raises Unavailable."""


class Balancing:
    """The balancers of the datacentres whose coordination is read here, by name.

    All methods are trio coroutines. A plan is refused for a datacentre without `planning`.
    `weights` tells what all work of a state weighs in a planner's books.
    """

    def __init__(
        self,
        metadata: Metadata,
        followed: Mapping[str, Followed],
        planning: Mapping[str, DryRunPlanner],
        weights: Callable[[CoordinationState], PlannerWeights],
        limits: OwnershipLimits = DEFAULT_LIMITS,
    ) -> None:
        self._metadata = metadata
        self._weights = weights
        self._limits = limits
        self._followed = dict(sorted(followed.items()))
        self._planning = planning
        self._is_planning = False

    def members(self) -> dict[str, list[str]]:
        """Return, for each datacentre, the nodes that take part, sorted."""
        return {
            dc: sorted({member.node for member in each.state.members.values()})
            for dc, each in self._followed.items()
        }

    async def status(self, subscription: str = "", node: str = "") -> dict[str, Any]:
        """Return, for each datacentre, its members and who runs what.

        `subscription` (`group.topic$name`, or `group.topic` for all of a topic) and `node` narrow
        what is shown down to what concerns them. Raises Refused for what is nowhere.
        """
        wanted = Subject(subscription, node)
        datacenters = [await self._status(dc, wanted) for dc in self._followed]
        if wanted.subscription and not any(
            each["subscriptions"] or each["unassigned"] for each in datacenters
        ):
            raise Refused(
                f"No subscription '{wanted.subscription}' is there", ErrorCode.OTHER, status=404
            )
        if wanted.node and not any(each["members"] or each["drained"] for each in datacenters):
            raise self._unknown_node(wanted.node)
        return {"datacenters": datacenters}

    async def plan(self, dc: str = "") -> dict[str, Any]:
        """Return what the planner of a datacentre, by default of this one, would change now.

        Raises Refused for a datacentre whose plans are not made here, and Unavailable, also while
        another one is being made.
        """
        dc = dc or self._metadata.dc
        followed = self._followed.get(dc)
        if followed is None:
            known = ", ".join(self._followed) or "none"
            raise Refused(f"Datacentre '{dc}' is not coordinated here; known are: {known}")
        planning = self._planning.get(dc)
        if planning is None:
            raise Refused(
                f"Plans of datacentre {dc} are made there; ask a management node of {dc} "
                "(with the hermes command: --management URL)"
            )
        if followed.trouble:
            raise Unavailable(f"Nothing is planned in {dc} now: {followed.trouble}")
        state = followed.state
        if not state.members:
            raise Unavailable(f"Nothing is planned in {dc} now: no consuming node takes part")
        if self._is_planning:
            # It takes a second of CPU in a large cluster, which this node has other uses for too.
            raise Unavailable("Somebody else's plan is being made; ask again")
        base = state.plan_offset
        self._is_planning = True
        try:
            proposal = await planning.propose(state)
            view = await in_turns(plan_view_in_steps(state, proposal, self._draining(dc, state)))
        finally:
            self._is_planning = False
        if state is not followed.state or state.plan_offset != base:
            raise Unavailable("The leader has made a plan meanwhile; ask again")
        return {"datacenter": dc, "plan": view}

    async def explain(self, about: str = "") -> dict[str, Any]:
        """The last moves and departures, the newest first, and why what it is `about` is where it
        is: a subscription, a node, or ("") all. Raises Refused for what is nowhere.
        """
        subject = self._subject(about)
        datacenters = []
        for dc, followed in self._followed.items():
            state = followed.state
            shown = self._heading(dc, followed)
            shown["why"] = await self._why(dc, state, subject)
            shown["moves"] = [
                move_view(each) for each in reversed(state.moves) if is_about(each, subject)
            ]
            shown["departures"] = [
                departure_view(each)
                for each in reversed(state.departed)
                if not subject.subscription and subject.node in ("", each.node)
            ]
            shown["resignations"] = [
                resignation_view(each)
                for each in reversed(state.resignations)
                if not subject.subscription and subject.node in ("", each.node)
            ]
            datacenters.append(shown)
            await trio.lowlevel.checkpoint()
        return {"about": about, "datacenters": datacenters}

    async def _why(self, dc: str, state: CoordinationState, subject: Subject) -> list[str]:
        catalog, draining = self._metadata.catalog, self._draining(dc, state)
        if subject.subscription:
            view = subscription_view(state, subject.subscription, self._weights(state))
            return reasons_of_subscription(view, state, catalog, draining, self._limits)
        if subject.node:
            tally = await in_turns(tally_in_steps(state, self._weights(state)))
            members = member_views(state, tally, draining)
            return reasons_of_node(
                subject.node,
                members,
                state,
                catalog.drains.get((dc, subject.node)),
                self._limits,
            )
        return []

    def _subject(self, about: str) -> Subject:
        if not about:
            return Subject()
        in_states = (followed.state.subscriptions for followed in self._followed.values())
        if about in self._metadata.catalog.subscriptions or any(
            about in each for each in in_states
        ):
            return Subject(subscription=about)
        if "$" in about:
            raise Refused(f"No subscription '{about}' is there", ErrorCode.OTHER, status=404)
        for dc, followed in self._followed.items():
            state = followed.state
            if (
                any(about == each.node for each in state.members.values())
                or any(about == each.node for each in state.departed)
                or (dc, about) in self._metadata.catalog.drains
            ):
                return Subject(node=about)
        raise self._unknown_node(about)

    async def _status(self, dc: str, wanted: Subject) -> dict[str, Any]:
        followed = self._followed[dc]
        state = followed.state
        draining = self._draining(dc, state)
        weights = self._weights(state)
        tally = await in_turns(tally_in_steps(state, weights))
        members = member_views(state, tally, draining)
        shown = self._heading(dc, followed)
        shown["skew"] = skew_of_members(members, tally.heaviest)
        shown["members"] = [each for each in members if wanted.node in ("", each.node)]
        shown["drained"] = self._drained(dc, state, members, wanted)
        shown["subscriptions"], shown["unassigned"] = await self._subscriptions(
            state, weights, draining, wanted
        )
        return shown

    def _heading(self, dc: str, followed: Followed) -> dict[str, Any]:
        state, trouble = followed.state, followed.trouble
        shown: dict[str, Any] = {"datacenter": dc, "isKnown": not trouble}
        if trouble:
            shown["reason"] = (
                f"the coordination log is not followed: {trouble}; what is shown was read before. "
                "Nodes that cannot reach it either pause their deliveries, and nothing moves"
            )
        shown["term"] = state.term
        leader = state.members.get(state.leader)
        if leader is not None:
            shown["leader"] = {
                "node": leader.node,
                "boot": leader.boot,
                "leaseAgeMs": state.clock_ms - leader.heard_log_ms,
            }
        shown["planOffset"] = state.plan_offset
        shown["position"] = state.position
        if state.timestamp_ms is not None:
            shown["lastRecordAt"] = state.timestamp_ms / 1_000
        shown["expiredLeases"] = state.expired
        since_ms = restarting_since(state.members.values(), state.departed, state.clock_ms)
        if since_ms is not None:
            shown["restartingForS"] = (state.clock_ms - since_ms) / 1_000
        return shown

    def _drained(
        self, dc: str, state: CoordinationState, members: list[MemberView], wanted: Subject
    ) -> list[dict[str, Any]]:
        found = []
        asked = self._metadata.catalog.draining_in(dc)
        is_ignored = is_drain_ignored(state, asked)
        for node in asked:
            if wanted.node not in ("", node):
                continue
            drain = self._metadata.catalog.drains[dc, node]
            lives = [each for each in members if each.node == node]
            found.append(
                {
                    "node": node,
                    "since": drain.since_ms / 1_000,
                    "by": drain.by,
                    **({"reason": drain.reason} if drain.reason else {}),
                    "isMember": bool(lives),
                    "isIgnored": is_ignored and bool(lives),
                    "tasks": sum(each.tasks for each in lives),
                    "targets": sum(each.targets for each in lives),
                }
            )
        return found

    async def _subscriptions(
        self,
        state: CoordinationState,
        weights: PlannerWeights,
        draining: Collection[str],
        wanted: Subject,
    ) -> tuple[list[SubscriptionView], list[dict[str, str]]]:
        catalog = self._metadata.catalog
        names = sorted({*catalog.subscriptions, *state.subscriptions})
        shown: list[SubscriptionView] = []
        unassigned: list[dict[str, str]] = []
        async for name in each_in_turns(names):
            if not _is_wanted(name, wanted.subscription):
                continue
            view = subscription_view(state, name, weights)
            if wanted.node and wanted.node not in _nodes_of(view):
                continue
            if view.owners or view.waiting:
                shown.append(view)
            reason = unassigned_reason(state, name, draining, self._limits)
            if reason is not None and name in catalog.subscriptions and not wanted.node:
                unassigned.append({"subscription": name, "reason": reason})
        return shown, unassigned

    def _draining(self, dc: str, state: CoordinationState) -> Collection[str]:
        return drained(state, self._metadata.catalog.draining_in(dc))

    def _unknown_node(self, node: str) -> Refused:
        known = "; ".join(
            f"{dc}: {', '.join(nodes) or 'none'}" for dc, nodes in self.members().items()
        )
        return Refused(
            f"'{node}' is neither a consuming node nor a subscription (<group>.<topic>$<name>); "
            f"nodes that take part are {known or 'none'}",
            ErrorCode.OTHER,
            status=404,
        )


def _is_wanted(name: str, wanted: str) -> bool:
    """Whether it is the one that is wanted, or of the topic that is."""
    return wanted in ("", name, name.rpartition("$")[0])


def _nodes_of(view: SubscriptionView) -> set[str]:
    return {each.node for each in view.owners} | {each.node for each in view.waiting}
