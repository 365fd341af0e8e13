"""All of management without HTTP: what the REST routes, and nothing else, are made of."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from hermes_actors.config import Config
from hermes_actors.coordination.room import Limits
from hermes_actors.coordination.state import State
from hermes_actors.coordination.tally import Weights
from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.filters.aside import Aside
from hermes_actors.log.base import Log, UnknownTopic
from hermes_actors.management.access.mode import AccessMode
from hermes_actors.management.access.roles import (
    Caller,
    OpenToAll,
    SecurityProvider,
    require_owner,
    roles_of,
)
from hermes_actors.management.balancing.consuming import ConsumingNodes
from hermes_actors.management.balancing.drains import Drains
from hermes_actors.management.balancing.ownership import Balancing, Planning, unweighed
from hermes_actors.management.balancing.placements import Followed, Placements
from hermes_actors.management.balancing.workload_constraints import WorkloadConstraints
from hermes_actors.management.catalog.groups import Groups
from hermes_actors.management.catalog.oauth_providers import OAuthProviders
from hermes_actors.management.catalog.readiness import DatacenterReadiness
from hermes_actors.management.catalog.signing import SigningSecrets
from hermes_actors.management.catalog.subscriptions import Subscriptions
from hermes_actors.management.catalog.topics import Topics
from hermes_actors.management.catalog.warnings import subscription_warnings
from hermes_actors.management.changes import Changes
from hermes_actors.management.dead_letters.letters import DeadLetterBox, Letters
from hermes_actors.management.dead_letters.redrives import Redrives
from hermes_actors.management.dead_letters.undelivered import UndeliveredMessages
from hermes_actors.management.messages.filters import try_filters
from hermes_actors.management.messages.previews import MessagePreviews
from hermes_actors.management.messages.tail import Tail, open_tail
from hermes_actors.management.messages.trials import Trials, TryPush
from hermes_actors.management.offsets.asking import Logs
from hermes_actors.management.offsets.retransmission import Retransmissions
from hermes_actors.management.offsets.standings import Standings
from hermes_actors.management.status.overview import Overview
from hermes_actors.management.status.statuses import Statuses
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.subscription import TrackingMode
from hermes_actors.model.topic import Ack, ContentType, Owner
from hermes_actors.runtime.clock import Clock, IdSource
from hermes_actors.runtime.threads import SystemThreads, Threads
from hermes_actors.security.address_guard import AddressGuard
from hermes_actors.status.fold import StatusFold
from hermes_actors.status.previews import PreviewRegister


class Administration:
    """Administers one datacentre's groups, topics and subscriptions.

    `metadata` and `log` are that datacentre's. `security` tells who calls; without one everybody
    is administrator. `status` is what readers of the nodes' status records fold into; without it
    there are no metrics. `notices` are what an operator should know of the node beside its
    metadata. `previews` is what readers of the nodes' previews fill. `datacenters` are all of the
    cluster; `remote_logs` are the others' logs, where dead letters lie too. `ids` is what secrets
    are made of. `coordinations` are those that this node follows, by datacentre, and `planning`
    asks the planners of some of them; `weights` says what all work of one weighs. `threads`
    run what would hold the loop up. `try_push` pushes one message as consumers do. Everything is a
    trio coroutine; those that change or read on a caller's behalf take the caller first. Each
    raises Refused (mend the request) and Unavailable (try again).
    """

    def __init__(
        self,
        metadata: Metadata,
        log: Log,
        config: Config,
        clock: Clock,
        security: SecurityProvider | None = None,
        status: StatusFold | None = None,
        notices: Callable[[], Sequence[str]] = tuple,
        previews: PreviewRegister | None = None,
        datacenters: Sequence[str] = (),
        remote_logs: Sequence[Log] = (),
        ids: IdSource | None = None,
        coordinations: Mapping[str, Followed] = MappingProxyType({}),
        planning: Mapping[str, Planning] = MappingProxyType({}),
        weights: Callable[[State], Weights] = unweighed,
        threads: Threads | None = None,
        try_push: TryPush | None = None,
    ) -> None:
        self._metadata = metadata
        self._notices = notices
        self._replicator = config.metadata.replicator if status is not None else ""
        self._is_replicator = self._replicator in ("", config.node)
        self._log = log
        self._clock = clock
        self._config = config
        # Its own: trying filters takes nothing from those who are delivered to.
        self._aside = Aside(config.consumers.filters, threads or SystemThreads())
        changes = Changes(metadata, config.management.change_timeout_ms / 1_000)
        self._owner_sources = config.management.owner_sources
        self.security: SecurityProvider = security or OpenToAll()
        self.groups = Groups(metadata, changes, config.management)
        self.topics = Topics(metadata, log, changes, config, clock)
        guard = AddressGuard(config.consumers.endpoints)
        self.subscriptions = Subscriptions(
            metadata, changes, config.management, clock, guard, self._aside
        )
        self.signing_secrets = SigningSecrets(self.subscriptions, ids or IdSource())
        place = {"datacenter": metadata.dc, "node": config.node}
        self.trials = Trials(self.topics, self.subscriptions, clock, try_push, place)
        self.oauth_providers = OAuthProviders(metadata, changes, guard)
        self.previews = MessagePreviews(self.topics, previews)
        self.workload_constraints = WorkloadConstraints(metadata, changes)
        balancer = config.consumers.balancer
        limits = Limits(balancer.tasks_per_node_max, balancer.consumers_per_subscription)
        self.balancing = Balancing(metadata, coordinations, planning, weights, limits)
        consuming = ConsumingNodes(
            (metadata.dc, *datacenters), status, clock, self.balancing.members
        )
        self.drains = Drains(metadata, changes, clock, consuming.by_datacenter)
        self.readiness = DatacenterReadiness(metadata, changes, datacenters)
        letters = Letters(metadata, self.subscriptions, (log, *remote_logs))
        self.dead_letters = DeadLetterBox(letters, clock)
        self.mode = AccessMode()
        placements = Placements(metadata, coordinations, limits)
        self.statuses = Statuses(metadata, self.subscriptions, status, clock, placements)
        self.overview = Overview(metadata, self.statuses)
        self.redrives = Redrives(metadata, letters, changes, self.statuses, clock)
        self.undelivered = UndeliveredMessages(metadata, letters, self.statuses)
        logs = Logs((log, *remote_logs))
        self.standings = Standings(metadata, logs, self.subscriptions, status, clock, coordinations)
        self.retransmissions = Retransmissions(metadata, logs, changes, self.subscriptions, clock)

    async def roles(
        self, caller: Caller, topic: str | None = None, subscription: str | None = None
    ) -> list[str]:
        """The caller's roles, for a topic or a subscription where one is named."""
        on_topic: tuple[Owner, ...] = ()
        on_subscription: tuple[Owner, ...] = ()
        if topic is not None:
            on_topic = self.topics.owners(self.topics.live(topic))
            if subscription is not None:
                found = self.subscriptions.live(topic, subscription)
                on_subscription = (found.subscription.owner,)
        return [role.value for role in roles_of(caller, on_topic, on_subscription)]

    async def owner_sources(self) -> list[dict[str, Any]]:
        """The directories of owners."""
        return [
            {"name": source, "autocomplete": False, "deprecated": False}
            for source in self._owner_sources
        ]

    async def owner(self, source: str, owner_id: str) -> dict[str, Any]:
        """One owner of a directory. Raises Refused with OWNER_SOURCE_NOT_FOUND."""
        self._require_source(source)
        return {"id": owner_id, "name": owner_id}

    async def stats(self) -> dict[str, Any]:
        """How many topics and subscriptions there are, by kind."""
        topics = [each.topic for each in self._metadata.catalog.topics.values()]
        subscriptions = [
            each.subscription for each in self._metadata.catalog.subscriptions.values()
        ]
        return {
            "topicStats": {
                "topicCount": len(topics),
                "ackAllTopicCount": sum(each.ack is Ack.ALL for each in topics),
                "trackingEnabledTopicCount": sum(each.tracking_enabled for each in topics),
                "avroTopicCount": sum(each.content_type is ContentType.AVRO for each in topics),
            },
            "subscriptionStats": {
                "subscriptionCount": len(subscriptions),
                "trackingEnabledSubscriptionCount": sum(
                    each.tracking_mode is not TrackingMode.OFF for each in subscriptions
                ),
                "avroSubscriptionCount": sum(
                    each.content_type is ContentType.AVRO for each in subscriptions
                ),
            },
        }

    async def tail(
        self,
        caller: Caller,
        topic: str,
        start: str,
        follow: bool,
        limit: int | None,
        last: int | None = None,
    ) -> Tail:
        """A topic's messages from `start` on, for owners and administrators; see `open_tail`."""
        live = self.topics.live(topic)
        require_owner(caller, f"read the messages of topic {topic}", *self.topics.owners(live))
        try:
            return await open_tail(
                self._log,
                live.log_topic,
                start,
                follow=follow,
                limit=limit,
                last=last,
                now_ms=self._clock.now_ms(),
            )
        except UnknownTopic as error:
            raise Unavailable(
                f"The log of datacentre {self._metadata.dc} does not hold topic {topic} yet; "
                "try again"
            ) from error

    async def try_filters(
        self, caller: Caller, topic: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Whether a message passes filters; see `messages/filters.py`."""
        return await try_filters(
            caller, self.topics.live, topic, body, self._config.frontend.propagation, self._aside
        )

    async def warnings_of(self, topic: str, name: str) -> list[str]:
        """Why the subscription as it is stored will not do what its owner expects."""
        live = self._metadata.catalog.subscriptions.get(f"{topic}${name}")
        providers = self._metadata.catalog.oauth_providers
        if live is None:
            return []
        return list(subscription_warnings(live.subscription, providers, self._config))

    def require_readable(self) -> None:
        """Raises Unavailable until the catalog shows a whole state; what is missing before then is
        not known to be absent.
        """
        if not self._metadata.is_readable:
            raise Unavailable(f"The metadata is not there yet: {self._metadata.health.reason}")

    async def health(self) -> dict[str, Any]:
        """`{"status":"UP"}`, with `notices` if an operator should know of something. Raises
        Unavailable while the metadata does not follow its log.
        """
        health = self._metadata.health
        if not health.is_current:
            raise Unavailable(f"The metadata is not current: {health.reason}")
        notices = [*self._metadata.notices(), *self._notices()]
        if not self._is_replicator and not self.statuses.may_be_there(self._replicator):
            notices.append(
                f"metadata.replicator: node '{self._replicator}' of {self._metadata.dc} is not "
                "there, so what changes in other datacentres does not come here; start it, or name "
                f"another one in the configuration of every node of {self._metadata.dc}"
            )
        return {"status": "UP", "notices": notices} if notices else {"status": "UP"}

    async def owners_found(self, source: str, search: str) -> list[dict[str, Any]]:
        """Owners that match a search: no source built in can search. Raises Refused."""
        self._require_source(source)
        raise Refused(
            f"Owner source {source} cannot search for '{search}'; give the id",
            ErrorCode.OWNER_SOURCE_DOESNT_SUPPORT_AUTOCOMPLETE,
        )

    def _require_source(self, source: str) -> None:
        if source not in self._owner_sources:
            raise Refused(
                f"Owner source {source} does not exist; known are {', '.join(self._owner_sources)}",
                ErrorCode.OWNER_SOURCE_NOT_FOUND,
            )
