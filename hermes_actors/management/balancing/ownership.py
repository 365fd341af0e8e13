"""Shows which nodes own which subscriptions and why, and what the planner would change now."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

import trio
from msgspec import Struct

from hermes_actors.coordination.commands import Assignment
from hermes_actors.coordination.room import (
    DEFAULT_LIMITS,
    OwnershipLimits,
    drained,
    is_drain_ignored,
)
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.tally import tally_in_steps
from hermes_actors.coordination.values import Move
from hermes_actors.coordination.view import Coordination
from hermes_actors.coordination.views import (
    MemberView,
    PlanView,
    SubscriptionView,
    change_view,
    departure_view,
    member_views,
    move_view,
    skew_of_members,
    subscription_view,
    unassigned_reason,
)
from hermes_actors.coordination.weights import Weights, weights_of
from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.subscription import SubscriptionState
from hermes_actors.runtime.turns import each_in_turns, in_turns

ProposePlan = Callable[[], Awaitable[tuple[Assignment, ...]]]
"""Asks the planner of this node's datacentre what it would change now. Raises Unavailable."""


class _Subject(Struct, frozen=True):
    """What a question is about: a topic, a subscription, a node, or everything if both are empty.

    `subscription` may hold a topic's name, which stands for all its subscriptions.
    """

    subscription: str = ""
    node: str = ""

    def covers(self, name: str) -> bool:
        """True if the question is about the subscription with this name."""
        return self.subscription in ("", name, name.rpartition("$")[0])

    def is_moved_by(self, move: Move) -> bool:
        """True if the question is about this move."""
        is_of_node = not self.node or self.node in (*move.before, *move.after)
        return self.covers(move.subscription) and is_of_node


class Balancing:
    """The balancers of the datacentres whose coordination log this node follows.

    `status`, `plan` and `explain` are trio coroutines. Without `propose_plan`, `plan` is refused.
    """

    def __init__(
        self,
        metadata: Metadata,
        followed: Mapping[str, Coordination],
        propose_plan: ProposePlan | None = None,
        limits: OwnershipLimits = DEFAULT_LIMITS,
    ) -> None:
        self._metadata = metadata
        self._limits = limits
        self._followed = dict(sorted(followed.items()))
        self._propose_plan = propose_plan
        self._is_planning = False

    def members(self) -> dict[str, list[str]]:
        """The nodes that take part in each datacentre's coordination, sorted."""
        return {
            dc: sorted({member.node for member in each.state.members.values()})
            for dc, each in self._followed.items()
        }

    async def status(self, subscription: str = "", node: str = "") -> dict[str, Any]:
        """The members, subscriptions and their owners in each datacentre.

        `subscription` (`group.topic$name`, or `group.topic` for all of a topic) and `node` limit
        the answer to these. Raises Refused (404) if they do not exist in any datacentre.
        """
        subject = _Subject(subscription, node)
        datacenters = [await self._status(dc, subject) for dc in self._followed]
        if subscription and not any(
            each["subscriptions"] or each["unassigned"] for each in datacenters
        ):
            raise _not_found(f"Subscription '{subscription}' does not exist")
        if node and not any(each["members"] or each["drained"] for each in datacenters):
            raise self._unknown_node(node)
        return {"datacenters": datacenters}

    async def unassigned(self) -> list[dict[str, str]]:
        """The active subscriptions that have no owner in a datacentre, in the format of older
        versions of Hermes.
        """
        states = [each.state for each in self._followed.values() if not each.trouble]
        subscriptions = self._metadata.catalog.subscriptions
        return [
            {"topicName": str(live.name.topic), "subscription": live.name.name}
            async for name, live in each_in_turns(sorted(subscriptions.items()))
            if live.state is not SubscriptionState.SUSPENDED
            and not all(state.targets_of(name) for state in states)
        ]

    async def plan(self, dc: str = "") -> dict[str, Any]:
        """What the planner of this datacentre would change now.

        Raises Refused for another datacentre, and Unavailable if there is no plan, also while
        another request is being planned.
        """
        own = self._metadata.dc
        followed = self._followed.get(own)
        if self._propose_plan is None or followed is None or dc not in ("", own):
            raise Refused(f"This node plans for {own} only; ask a management node of {dc or own}")
        if followed.trouble:
            raise Unavailable(f"Nothing is planned in {own} now: {followed.trouble}")
        state = followed.state
        if not state.members:
            raise Unavailable(f"Nothing is planned in {own} now: no consuming node takes part")
        if self._is_planning:
            # In a large cluster planning takes a second of CPU, which this node needs otherwise.
            raise Unavailable("Another plan is being made now; try again")
        base = state.plan_offset
        self._is_planning = True
        try:
            assignments = await self._propose_plan()
        finally:
            self._is_planning = False
        if state is not followed.state or state.plan_offset != base:
            raise Unavailable("The leader has made a plan meanwhile; try again")
        changes = tuple([change_view(state, each) async for each in each_in_turns(assignments)])
        moves = sum(each.moves for each in changes)
        return {"datacenter": own, "plan": PlanView(state.term, base, moves, changes)}

    async def explain(self, about: str = "") -> dict[str, Any]:
        """The status of a subscription or node (all if `about` is empty), with the last moves and
        departures, newest first. Raises Refused (404) if it does not exist.
        """
        subject = self._subject(about)
        datacenters = []
        for dc, followed in self._followed.items():
            state = followed.state
            shown = await self._status(dc, subject) if about else self._heading(dc, followed)
            shown["moves"] = [
                move_view(each) for each in reversed(state.moves) if subject.is_moved_by(each)
            ]
            shown["departures"] = [
                departure_view(each)
                for each in reversed(state.departed)
                if not subject.subscription and subject.node in ("", each.node)
            ]
            datacenters.append(shown)
            await trio.lowlevel.checkpoint()
        return {"about": about, "datacenters": datacenters}

    def _subject(self, about: str) -> _Subject:
        states = [followed.state for followed in self._followed.values()]
        catalog = self._metadata.catalog
        if not about:
            return _Subject()
        if about in catalog.subscriptions or any(about in each.subscriptions for each in states):
            return _Subject(subscription=about)
        if "$" in about:
            raise _not_found(f"Subscription '{about}' does not exist")
        nodes = {member.node for state in states for member in state.members.values()}
        nodes |= {departed.node for state in states for departed in state.departed}
        nodes |= {node for dc, node in catalog.drains if dc in self._followed}
        if about not in nodes:
            raise self._unknown_node(about)
        return _Subject(node=about)

    async def _status(self, dc: str, subject: _Subject) -> dict[str, Any]:
        followed = self._followed[dc]
        state = followed.state
        draining = drained(state, self._metadata.catalog.draining_in(dc))
        weights = weights_of(state)
        tally = await in_turns(tally_in_steps(state, weights))
        members = member_views(state, tally, draining)
        shown = self._heading(dc, followed)
        shown["skew"] = skew_of_members(members, tally.heaviest)
        shown["members"] = [each for each in members if subject.node in ("", each.node)]
        shown["drained"] = self._drained(dc, state, members, subject)
        shown["subscriptions"], shown["unassigned"] = await self._subscriptions(
            state, weights, draining, subject
        )
        return shown

    def _heading(self, dc: str, followed: Coordination) -> dict[str, Any]:
        state, trouble = followed.state, followed.trouble
        shown: dict[str, Any] = {"datacenter": dc, "isKnown": not trouble}
        if trouble:
            shown["reason"] = f"not followed: {trouble}; shown as last read"
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
        return shown

    def _drained(
        self, dc: str, state: CoordinationState, members: list[MemberView], subject: _Subject
    ) -> list[dict[str, Any]]:
        found = []
        asked = self._metadata.catalog.draining_in(dc)
        is_ignored = is_drain_ignored(state, asked)
        for node in asked:
            if subject.node not in ("", node):
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
        weights: Weights,
        draining: Collection[str],
        subject: _Subject,
    ) -> tuple[list[SubscriptionView], list[dict[str, str]]]:
        catalog = self._metadata.catalog
        shown: list[SubscriptionView] = []
        unassigned: list[dict[str, str]] = []
        async for name in each_in_turns(sorted({*catalog.subscriptions, *state.subscriptions})):
            if not subject.covers(name):
                continue
            view = subscription_view(state, name, weights)
            nodes = {each.node for each in view.owners} | {each.node for each in view.waiting}
            if subject.node and subject.node not in nodes:
                continue
            if nodes:
                shown.append(view)
            reason = unassigned_reason(state, name, draining, self._limits)
            if reason is not None and name in catalog.subscriptions and not subject.node:
                unassigned.append({"subscription": name, "reason": reason})
        return shown, unassigned

    def _unknown_node(self, node: str) -> Refused:
        known = "; ".join(
            f"{dc}: {', '.join(nodes) or 'none'}" for dc, nodes in self.members().items()
        )
        return _not_found(
            f"'{node}' is neither a consuming node nor a subscription (<group>.<topic>$<name>); "
            f"nodes that take part are {known or 'none'}"
        )


def _not_found(message: str) -> Refused:
    return Refused(message, ErrorCode.OTHER, status=404)
