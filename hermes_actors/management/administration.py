"""Management without HTTP: the parts that the REST routes call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hermes_actors.config import Config
from hermes_actors.coordination.room import OwnershipLimits
from hermes_actors.coordination.view import Coordination
from hermes_actors.fallback.spool.spool import Spool
from hermes_actors.log.base import Log
from hermes_actors.log.memory import MemoryLog
from hermes_actors.management.access.mode import AccessMode
from hermes_actors.management.access.roles import (
    OpenToAll,
    SecurityProvider,
)
from hermes_actors.management.audit import AuditTrail
from hermes_actors.management.balancing.operating import ConsumingNodes, Drains, WorkloadConstraints
from hermes_actors.management.balancing.ownership import Balancing, ProposePlan
from hermes_actors.management.balancing.placements import Placements
from hermes_actors.management.catalog.groups import Groups
from hermes_actors.management.catalog.oauth_providers import OAuthProviders
from hermes_actors.management.catalog.owners import Owners
from hermes_actors.management.catalog.readiness import DatacenterReadiness
from hermes_actors.management.catalog.registry import SchemaRegistry
from hermes_actors.management.catalog.signing import SigningSecrets
from hermes_actors.management.catalog.subjects import (
    ExternalSubjects,
    RehearsedSubjects,
    Subjects,
)
from hermes_actors.management.catalog.subscriptions import Subscriptions
from hermes_actors.management.catalog.topic_schemas import TopicSchemas
from hermes_actors.management.catalog.topics import Topics
from hermes_actors.management.changes import Changes
from hermes_actors.management.configuration.apply import Apply, Resources
from hermes_actors.management.configuration.backup import Backups
from hermes_actors.management.configuration.consistency import Consistency
from hermes_actors.management.configuration.hermes_console import HermesConsole
from hermes_actors.management.dead_letters.letters import DeadLetters, Letters
from hermes_actors.management.dead_letters.redrives import Redrives
from hermes_actors.management.dead_letters.undelivered import UndeliveredMessages
from hermes_actors.management.messages.filters import FilterTrials
from hermes_actors.management.messages.inactive import InactiveTopics
from hermes_actors.management.messages.offline import OfflineTasks
from hermes_actors.management.messages.previews import MessagePreviews
from hermes_actors.management.messages.publish_trials import Publish, PublishTrials
from hermes_actors.management.messages.pulls import AskOwner, Pulls
from hermes_actors.management.messages.tail import Tails
from hermes_actors.management.messages.tracking import MessageTracking
from hermes_actors.management.messages.trials import Trials, TryPush
from hermes_actors.management.offsets.asking import Logs
from hermes_actors.management.offsets.retransmission import Retransmissions
from hermes_actors.management.offsets.standings import Standings
from hermes_actors.management.queries.queries import Queries
from hermes_actors.management.status.health import NodeHealth
from hermes_actors.management.status.overview import Overview
from hermes_actors.management.status.statuses import Statuses
from hermes_actors.metadata.registry import Metadata
from hermes_actors.runtime.clock import Clock, IdSource
from hermes_actors.runtime.workers import WorkerPool
from hermes_actors.schema.client import RegistryClient
from hermes_actors.schema.reading import AvroReader
from hermes_actors.schema.source import CatalogSchemas, SchemaSource
from hermes_actors.security.address_guard import AddressGuard
from hermes_actors.status.dependencies import ProbeAnswer, probed
from hermes_actors.status.fold import StatusFold
from hermes_actors.tracking.reader import TrackingFollowing


@dataclass(frozen=True)
class ClusterView:
    """What a management node knows of the cluster beyond its own datacentre's metadata and log.

    `datacenters`: all datacentres of the cluster. `remote_logs`: the logs of the others, which hold
    dead letters too. `status`: the fold of the nodes' status records; without it there are no
    metrics. `tracking`: finds messages. `coordinations`: the coordination logs that this node
    follows, by datacentre. `propose_plan`: asks the planner what it would change now.
    `spool`: this node's spool.
    """

    datacenters: Sequence[str] = ()
    remote_logs: Sequence[Log] = ()
    status: StatusFold | None = None
    tracking: TrackingFollowing | None = None
    coordinations: Mapping[str, Coordination] = field(default_factory=dict)
    propose_plan: ProposePlan | None = None
    spool: Callable[[], Spool | None] = field(default=lambda: None)


class Administration:
    """The parts that administer one datacentre's groups, topics and subscriptions.

    `metadata` and `log` are that datacentre's. `security` identifies callers; without it everybody
    is an administrator. `notices` returns further warnings about this node. `probe` answers
    Kubernetes' probes. `ids` generates secrets. `pool` runs slow work on schemas and filters.
    `try_push` pushes one message as consumers do, `publish` publishes one. `ask_owner` has a pull
    subscription's owner answer its clients. `schemas` are the schemas that the node knows, by
    default those in the metadata; with `registry` they are stored there.

    The operations are trio coroutines. If the caller matters, it is the first argument. They raise
    Refused (correct the request) and Unavailable (try again).
    """

    def __init__(
        self,
        metadata: Metadata,
        log: Log,
        config: Config,
        clock: Clock,
        *,
        security: SecurityProvider | None = None,
        view: ClusterView | None = None,
        notices: Callable[[], Sequence[str]] = tuple,
        probe: Callable[[str], ProbeAnswer] = probed,
        ids: IdSource | None = None,
        pool: WorkerPool,
        try_push: TryPush | None = None,
        ask_owner: AskOwner | None = None,
        publish: Publish | None = None,
        schemas: SchemaSource | None = None,
        registry: RegistryClient | None = None,
    ) -> None:
        view = view or ClusterView()
        kept = schemas or CatalogSchemas(metadata.catalog)
        reader = AvroReader(kept, pool)
        self.pool = pool
        changes = Changes(metadata, config.management.change_timeout_ms / 1_000)
        self.security: SecurityProvider = security or OpenToAll()
        self.groups = Groups(metadata, changes, config.management)
        asked = (metadata, changes, pool, config.management, kept)
        self.subjects = ExternalSubjects(*asked, registry) if registry else Subjects(*asked)
        self.topics = Topics(metadata, log, changes, self.subjects, config, clock)
        guard = AddressGuard(config.consumers.endpoints)
        self.schema_registry = SchemaRegistry(self.topics, self.subjects, config.management)
        self.topic_schemas = TopicSchemas(self.topics, self.subjects, config.management)
        self.subscriptions = Subscriptions(
            metadata, log, changes, config.management, clock, guard, pool
        )
        ids = ids or IdSource()
        self.signing_secrets = SigningSecrets(self.subscriptions, ids)
        self.offline_tasks = OfflineTasks(metadata.catalog, self.topics, changes, clock, ids)
        place = {"datacenter": metadata.dc, "node": config.node}
        self.trials = Trials(self.topics, self.subscriptions, try_push, place)
        self.pulls = Pulls(self.subscriptions, ask_owner)
        self.publish_trials = PublishTrials(self.topics, publish)
        self.oauth_providers = OAuthProviders(metadata, changes, guard)
        self.workload_constraints = WorkloadConstraints(metadata, changes)
        balancer = config.consumers.balancer
        limits = OwnershipLimits(balancer.tasks_per_node_max, balancer.consumers_per_subscription)
        self.balancing = Balancing(metadata, view.coordinations, view.propose_plan, limits)
        consuming = ConsumingNodes(
            (metadata.dc, *view.datacenters), view.status, clock, self.balancing.members
        )

        def rehearse() -> Resources:
            """Parts that change a copy of the metadata, and create no log topics."""
            tried, scratch = metadata.rehearsal(), MemoryLog(metadata.dc, clock)
            trying = Changes(tried, config.management.change_timeout_ms / 1_000)
            source = kept if registry else CatalogSchemas(tried.catalog)
            asked = (tried, trying, pool, config.management, source)
            subjects = RehearsedSubjects(*asked) if registry else Subjects(*asked)
            return Resources(
                tried,
                Groups(tried, trying, config.management),
                OAuthProviders(tried, trying, guard),
                subjects,
                Topics(tried, scratch, trying, subjects, config, clock),
                Subscriptions(tried, scratch, trying, config.management, clock, guard, pool),
                WorkloadConstraints(tried, trying),
            )

        real = Resources(
            metadata,
            self.groups,
            self.oauth_providers,
            self.subjects,
            self.topics,
            self.subscriptions,
            self.workload_constraints,
        )
        self.apply = Apply(real, rehearse)
        self.backups = Backups(metadata, changes)
        self.drains = Drains(metadata, changes, clock, consuming)
        self.readiness = DatacenterReadiness(metadata, changes, view.datacenters)
        clusters = dict(each.split("=", 1) for each in config.management.cluster_names)
        logs = Logs((log, *view.remote_logs), clusters)
        self.previews = MessagePreviews(self.topics, logs, metadata.dc, reader)
        letters = Letters(logs, metadata.namespace)
        self.tracking = MessageTracking(
            metadata,
            self.subscriptions,
            letters,
            view.tracking,
            view.status or StatusFold(),
            view.spool,
            config.node,
        )
        self.dead_letters = DeadLetters(letters, self.subscriptions, clock, reader)
        self.audit = AuditTrail(metadata, clock)
        self.mode = AccessMode()
        placements = Placements(metadata, view.coordinations, limits)
        self.statuses = Statuses(metadata, self.subscriptions, view.status, clock, placements)
        self.hermes_console = HermesConsole(config.management)
        self.inactive_topics = InactiveTopics(metadata.catalog, logs, clock)
        self.consistency = Consistency(metadata, changes, logs)
        self.overview = Overview(metadata, self.statuses)
        self.queries = Queries(metadata, self.topics, self.subscriptions, self.statuses, pool.cpu_s)
        self.redrives = Redrives(metadata, letters, changes, self.subscriptions, clock)
        self.undelivered = UndeliveredMessages(metadata, letters, self.subscriptions, self.statuses)
        self.standings = Standings(
            metadata, logs, self.subscriptions, view.status, clock, view.coordinations
        )
        self.retransmissions = Retransmissions(metadata, logs, changes, self.subscriptions, clock)
        self.owners = Owners(self.topics, self.subscriptions, config.management.owner_sources)
        self.tails = Tails(self.topics, log, clock, reader)
        self.filter_trials = FilterTrials(
            self.topics, self.subjects, config.frontend.propagation, pool
        )
        self.health = NodeHealth(metadata, notices, probe)
