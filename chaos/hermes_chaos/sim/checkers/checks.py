"""All checkers of a run. Each judges from the edges: publishers' answers, the logs' records, and
subscribers' messages.
"""

from collections.abc import Callable

from hermes_actors.config import Config
from hermes_chaos.sim.checkers.aging import TimeToLiveIsKept
from hermes_chaos.sim.checkers.answering import OtherDatacentreServes, PublishesAreAnswered
from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.checkers.committing import LateCommitsAreMended, SettledStaySettled
from hermes_chaos.sim.checkers.delivering import (
    AcknowledgedAreDelivered,
    CommitsPassOnlySettled,
    PayloadsAreIntact,
)
from hermes_chaos.sim.checkers.duplicating import DuplicatesHaveCauses, HedgesAreFew
from hermes_chaos.sim.checkers.fencing import FencesAreKept
from hermes_chaos.sim.checkers.folding import FoldsAgree, RegistersConverge
from hermes_chaos.sim.checkers.giving_up import LettersCloseByDelivery, LettersHaveCauses
from hermes_chaos.sim.checkers.holding import (
    AttemptsAreFew,
    BatchesAreBounded,
    DeadEndpointsRest,
    FilteredStayAway,
    SuspensionHalts,
)
from hermes_chaos.sim.checkers.ordering import KeysKeepTheirOrder, SpoolKeepsOrder
from hermes_chaos.sim.checkers.owning import (
    BalancerSettles,
    Ledgers,
    OneOwner,
    OwnersAreFound,
    PartsAreOfOne,
)
from hermes_chaos.sim.checkers.publishing import AcknowledgedAreStored, RefusedAreNowhere
from hermes_chaos.sim.checkers.pulling import HandOutsAreExclusive, StaleAcksAreRefused
from hermes_chaos.sim.checkers.pushing import InflightIsKept, RateIsKept, RetriesWait
from hermes_chaos.sim.checkers.recovering import LostLogsAreSpared, OwnDatacentreServesAgain
from hermes_chaos.sim.checkers.repeating import IdempotencyIsKept
from hermes_chaos.sim.checkers.sequencing import OrderIsKept
from hermes_chaos.sim.checkers.starting import NothingOfBeforeIsHanded
from hermes_chaos.sim.checkers.versioning import WrittenVersionsAreRead
from hermes_chaos.sim.history.events import Event, Place
from hermes_chaos.sim.workload.subject import Subject

_ROOMY_BATCH_BYTES = 500_000


class Settling(Checker):
    """Everything settles within a bound after the last fault is healed. The world reports it."""

    name = "everything settles"

    def settled(self, subscriptions: int) -> None:
        """Everything has settled: that many subscriptions are owed nothing and have no lag."""
        self.examined += subscriptions

    def failed(self, why: str) -> None:
        """The bound has passed, or the world could not be set up."""
        self.examined += 1
        self.violations.append(why)


class NothingFailsUnasked(Checker):
    """No actor fails unless the nemesis made it fail. The world reports it."""

    name = "nothing fails unasked"

    def started(self) -> None:
        """A node has begun a watched life."""
        self.examined += 1

    def failed(self, what: str) -> None:
        """The product reported a failure that was not injected."""
        self.violations.append(what)


class Checks:
    """The checkers, and the events passed to all of them.

    `config` is shared by all nodes. `keeps` (node, message id): True if a crash now would leave the
    message on that node's disk. `end_of`: the offset up to which a partition can be read now.
    """

    def __init__(
        self,
        subject: Subject,
        config: Config,
        keeps: Callable[[str, str], bool],
        end_of: Callable[[Place], int],
    ) -> None:
        frontend, fallback = config.frontend, config.fallback
        # A message may be larger than a small batch.
        is_small = frontend.batch_bytes_max < _ROOMY_BATCH_BYTES
        limits = frontend.waiting_per_topic_max, 1 if is_small else frontend.batch_records_max
        self.stored = AcknowledgedAreStored(subject, keeps)
        self.refused = RefusedAreNowhere()
        self.delivered = AcknowledgedAreDelivered(subject, self.stored)
        self.newcomers = NothingOfBeforeIsHanded(subject, subject.dcs[0], end_of)
        self.commits = CommitsPassOnlySettled(subject)
        self.late_commits = LateCommitsAreMended(subject)
        self.payloads = PayloadsAreIntact(subject)
        self.retries = RetriesWait(subject)
        self.versions = WrittenVersionsAreRead(subject)
        self.ledgers = Ledgers()
        self.settling = Settling()
        self.failures = NothingFailsUnasked()
        self.all: tuple[Checker, ...] = (
            self.stored,
            self.refused,
            PublishesAreAnswered(subject, *limits),
            OtherDatacentreServes(subject, *limits),
            IdempotencyIsKept(),
            SpoolKeepsOrder(),
            KeysKeepTheirOrder(),
            DuplicatesHaveCauses(subject),
            HedgesAreFew(subject, fallback.hedge_budget_percent, fallback.hedge_burst_max),
            LostLogsAreSpared(subject),
            OwnDatacentreServesAgain(subject),
            self.delivered,
            self.newcomers,
            self.commits,
            SettledStaySettled(subject),
            self.late_commits,
            self.payloads,
            RateIsKept(subject),
            InflightIsKept(subject),
            self.retries,
            OrderIsKept(subject),
            FilteredStayAway(subject),
            AttemptsAreFew(subject),
            SuspensionHalts(subject),
            BatchesAreBounded(subject),
            DeadEndpointsRest(subject),
            OneOwner(subject, self.ledgers),
            FencesAreKept(),
            PartsAreOfOne(subject),
            OwnersAreFound(subject, self.ledgers, config.management.topic_partitions),
            BalancerSettles(self.ledgers),
            FoldsAgree(),
            RegistersConverge(),
            HandOutsAreExclusive(),
            StaleAcksAreRefused(),
            LettersHaveCauses(subject),
            LettersCloseByDelivery(subject),
            TimeToLiveIsKept(subject),
            self.versions,
            self.settling,
            self.failures,
        )

    def creating(self, name: str) -> None:
        """A subscription is about to be requested."""
        self.newcomers.creating(name)

    def created(self, name: str, is_exact: bool) -> None:
        """A subscription was confirmed; start watching it. `is_exact`: it knows its
        topic's ends.
        """
        self.newcomers.created(name, is_exact)
        self.delivered.created(name)

    def removing(self, name: str) -> None:
        """A subscription's removal is about to be requested; stop watching it."""
        self.newcomers.removing(name)
        self.delivered.removing(name)

    def watch(self, event: Event) -> None:
        """Pass the event to every checker."""
        self.ledgers.watch(event)
        for checker in self.all:
            checker.watch(event)

    def finish(self) -> list[str]:
        """All violations, each with its checker's name."""
        found: list[str] = []
        for checker in self.all:
            checker.finish()
            if checker.examined == 0 and not checker.is_rare:
                checker.violations.append("nothing was examined")
            found.extend(f"{checker.name}: {each}" for each in checker.violations)
        return found
