"""People who administer a cluster under load and faults: they create, remove, change, suspend,
resume, retransmit, and re-drive dead letters.

Failed actions are retried, also on the other datacentre. Afterwards `tidy` brings everything into a
state in which it can settle.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime

import trio

from hermes_actors.errors import ErrorCode, HermesError, Refused
from hermes_actors.management.access.roles import Anonymous
from hermes_actors.management.administration import Administration
from hermes_actors.model.subscription import SubscriptionState
from hermes_chaos.sim.checkers.checks import Checks
from hermes_chaos.sim.environment.clock import EPOCH_MS
from hermes_chaos.sim.history.avro import VERSIONS, schema_of
from hermes_chaos.sim.history.events import History
from hermes_chaos.sim.history.trace import Trace
from hermes_chaos.sim.workload.plans import (
    ALL_SUBSCRIPTIONS,
    ALL_TOPICS,
    LATE_SUBSCRIPTIONS,
    SLOWPOKE,
    SOUGHT_SUBSCRIPTIONS,
    STRICT,
    SUBSCRIPTIONS,
    VISITS,
    SubscriptionPlan,
)

_CALLER = Anonymous()
_PAUSE_S = 0.3
_CONVERGENCE_S = 1.5
_ATTEMPTS_MAX = 5
_SEEK_MAX_S = 1.0
_REDRIVE_RATE = 0.4
_INTERRUPTION_RATE = 0.4
_CLASH_RATE = 0.5

Act = Callable[[Administration], Awaitable[None]]


class Operator:
    """One run's operator.

    `administrations` returns each datacentre's, None while its node is down. `told` hears of each
    new subscription before the request and at its confirmation, and of each removal before the
    request.
    """

    def __init__(
        self,
        administrations: Callable[[], Sequence[Administration | None]],
        told: Checks,
        rng: random.Random,
        history: History,
        trace: Trace,
    ) -> None:
        self._administrations = administrations
        self._told = told
        self._rng = rng
        self._history = history
        self._trace = trace
        self._to_create = list(LATE_SUBSCRIPTIONS)
        self._to_remove: list[SubscriptionPlan] = []
        self._version = 1

    async def run(self, acts: int, *, begin_s: float, end_s: float) -> None:
        """Do that many actions between the two times."""
        moments = sorted(self._rng.uniform(begin_s, end_s) for _ in range(acts))
        for moment in moments:
            await trio.sleep_until(moment)
            if self._to_create and self._rng.random() < 0.5:
                await self._create(_ATTEMPTS_MAX)
            elif self._to_remove and self._rng.random() < 0.3:
                await self._remove()
            else:
                plan = self._rng.choice(SUBSCRIPTIONS)
                await self._try(*self._draw_change(plan), _ATTEMPTS_MAX)
            if self._rng.random() < _INTERRUPTION_RATE:
                await self._try(f"interrupt {SLOWPOKE.name}", _interrupt, 1)
            if self._rng.random() < _REDRIVE_RATE:
                await self._try(f"re-drive {STRICT.name}", _redrive, 1)
            if self._rng.random() < _CLASH_RATE:
                await self._clash(self._rng.choice(ALL_TOPICS).name)

    async def evolve(self, rng: random.Random, *, begin_s: float, end_s: float) -> None:
        """Save the versions of the Avro topic's schema, between the two times."""
        for moment in sorted(rng.uniform(begin_s, end_s) for _ in range(VERSIONS - 1)):
            await trio.sleep_until(moment)
            await self._save_next()

    async def _save_next(self) -> None:
        version = self._version + 1

        async def save(administration: Administration) -> None:
            await administration.topic_schemas.save(_CALLER, VISITS.name, schema_of(version))

        self._told.versions.saving(version)
        what = f"save version {version} of the schema of {VISITS.name}"
        if await self._try(what, save, _ATTEMPTS_MAX, at_home=True):
            self._told.versions.saved(version, trio.current_time())
            self._version = version

    async def _clash(self, topic: str) -> None:
        """Change the topic in all datacentres at once, in each to something else. It is not changed
        again.
        """
        text = f"at once, {self._rng.randrange(1_000)}"

        async def change(number: int, administration: Administration) -> None:
            patch = {"description": f"{text}, {number}"}
            with suppress(HermesError), trio.move_on_after(_SEEK_MAX_S):
                await administration.topics.update(_CALLER, topic, patch)

        self._trace.note("operator", f"change {topic} everywhere")
        async with trio.open_nursery() as nursery:
            for number, each in enumerate(self._administrations()):
                if each is not None:
                    nursery.start_soon(change, number, each)

    async def tidy(self) -> None:
        """Create and save what is missing, and resume suspended subscriptions. Only when all is
        healed.
        """
        while self._to_create:
            await self._create(_ATTEMPTS_MAX)
        while self._version < VERSIONS:
            await self._save_next()
        while True:
            for plan in ALL_SUBSCRIPTIONS:
                await self._try(f"resume {plan.name}", _set_state(plan, "ACTIVE"), 1, at_home=True)
            await self._try(f"re-drive {STRICT.name}", _redrive, 1, at_home=True)
            # A suspension made by another datacentre, or one without an answer, may still arrive.
            await trio.sleep(_CONVERGENCE_S)
            if not self._suspended():
                return

    async def keep_active(self) -> None:
        """After `tidy`, keep resuming subscriptions that the broker suspends late for an old
        answer.
        """
        while True:
            await trio.sleep(_CONVERGENCE_S)
            for plan in self._suspended():
                await self._try(f"resume {plan.name}", _set_state(plan, "ACTIVE"), 1, at_home=True)

    def _suspended(self) -> list[SubscriptionPlan]:
        """The subscriptions that some datacentre regards as suspended or does not know yet; all, if
        one cannot be asked.
        """
        administrations = self._administrations()
        return [
            plan
            for plan in ALL_SUBSCRIPTIONS
            if any(each is None or _is_suspended(each, plan) for each in administrations)
        ]

    def _draw_change(self, plan: SubscriptionPlan) -> tuple[str, Act]:
        drawn = self._rng.randrange(7)
        if drawn >= 4:
            return self._draw_seek(drawn == 4)
        if drawn == 0:
            return f"suspend {plan.name}", _set_state(plan, "SUSPENDED")
        if drawn == 1:
            return f"resume {plan.name}", _set_state(plan, "ACTIVE")
        text = f"changed {self._rng.randrange(1_000)} times"
        # Another time-out affects running consumers and no checker's expectation.
        timeout = {"socketTimeout": 60_000 + drawn}
        if "deliveryType" in plan.more:
            timeout = {"requestTimeout": 450 + drawn}
        patch = {"description": text, "subscriptionPolicy": timeout}
        return f"change {plan.name}", lambda administration: administration.subscriptions.update(
            _CALLER, plan.topic, plan.name, patch
        )

    def _draw_seek(self, is_end: bool) -> tuple[str, Act]:
        """Draw a retransmission, in one of four cases to the end. The operator does not wait long
        for it.
        """
        plan = self._rng.choice(SOUGHT_SUBSCRIPTIONS)
        back_s = self._rng.uniform(0.2, 4.0)
        at_ms = EPOCH_MS + int((trio.current_time() - back_s) * 1_000)
        date = datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat()
        body = (
            {"to": "end"} if is_end and self._rng.random() < 0.75 else {"retransmissionDate": date}
        )

        async def seek(administration: Administration) -> None:
            with trio.move_on_after(_SEEK_MAX_S):
                await administration.retransmissions.move(
                    _CALLER, plan.topic, plan.name, body, False
                )

        return f"retransmit {plan.name} {body}", seek

    async def _create(self, attempts_max: int) -> None:
        plan = self._to_create[0]
        self._told.creating(plan.full_name)
        is_exact = False

        async def create(administration: Administration) -> None:
            nonlocal is_exact
            try:
                await administration.subscriptions.create(_CALLER, plan.topic, plan.wire())
            except HermesError as error:
                # An earlier attempt with an unknown outcome has created it.
                if error.code is not ErrorCode.SUBSCRIPTION_ALREADY_EXISTS:
                    raise
            made = administration.subscriptions.live(plan.topic, plan.name)
            is_exact = made.creation is not None

        if await self._try(f"create {plan.name}", create, attempts_max, at_home=True):
            self._to_create.remove(plan)
            self._to_remove.append(plan)
            self._told.created(plan.full_name, is_exact)

    async def _remove(self) -> None:
        plan = self._to_remove.pop(0)
        self._told.removing(plan.full_name)

        async def remove(administration: Administration) -> None:
            try:
                await administration.subscriptions.delete(_CALLER, plan.topic, plan.name)
            except HermesError as error:
                if error.code is not ErrorCode.SUBSCRIPTION_NOT_EXISTS:
                    raise

        # A removal without an answer may take effect late. Only after a confirmed one does "exists
        # already" mean the new subscription.
        while not await self._try(f"remove {plan.name}", remove, _ATTEMPTS_MAX, at_home=True):
            pass
        self._to_create.append(plan)

    async def _try(self, what: str, act: Act, attempts_max: int, *, at_home: bool = False) -> bool:
        """True if the action was confirmed. `at_home`: in the first datacentre only, because what
        one removed still exists in the other for a while.
        """
        for _ in range(attempts_max):
            administrations = self._administrations()
            chosen = administrations[0] if at_home else self._rng.choice(administrations)
            if chosen is not None:
                try:
                    await act(chosen)
                except HermesError as error:
                    self._history.faults["administration refused"] += 1
                    self._trace.note("operator", f"{what}: {type(error).__name__}")
                else:
                    self._trace.note("operator", what)
                    return True
            await trio.sleep(_PAUSE_S)
        return False


async def _interrupt(administration: Administration) -> None:
    """Suspend the subscription that always pushes at its limit, and resume it at once."""
    for state in ("SUSPENDED", "ACTIVE"):
        await administration.subscriptions.set_state(_CALLER, SLOWPOKE.topic, SLOWPOKE.name, state)


async def _redrive(administration: Administration) -> None:
    body = {"all": True, "ratePerSecond": 50}
    await administration.redrives.start(_CALLER, STRICT.topic, STRICT.name, body)


def _is_suspended(administration: Administration, plan: SubscriptionPlan) -> bool:
    try:
        live = administration.subscriptions.live(plan.topic, plan.name)
    except Refused:
        # It was created in another datacentre just now.
        return True
    return live.subscription.state is SubscriptionState.SUSPENDED


def _set_state(plan: SubscriptionPlan, state: str) -> Act:
    return lambda administration: administration.subscriptions.set_state(
        _CALLER, plan.topic, plan.name, state
    )
