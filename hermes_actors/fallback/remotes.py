"""The datacentres that a node publishes to: its own, and the others in the order to ask them."""

import random
from collections.abc import Callable, Sequence

from hermes_actors.config import ConfigError
from hermes_actors.config.fallback import FallbackConfig
from hermes_actors.fallback.account import FallbackMeasures
from hermes_actors.fallback.breaker import Breaker, Sent
from hermes_actors.fallback.delay import AdaptiveDelay
from hermes_actors.log.base import Log, Outcome, RefusedRecord, stored_count
from hermes_actors.model.topic import Ack


def in_order(configured: Sequence[str], known: Sequence[str]) -> list[str]:
    """The remotes as configured, else all that are known, by name. Raises ConfigError."""
    for dc in configured:
        if dc not in known:
            others = ", ".join(sorted(known)) or "none"
            raise ConfigError(
                f"fallback.remotes: '{dc}' is no other datacentre of this node; there are: {others}"
            )
    return list(dict.fromkeys(configured)) or sorted(known)


class Datacentre:
    """One datacentre's log, and what all topics together know of it."""

    def __init__(
        self,
        log: Log,
        config: FallbackConfig,
        rng: random.Random,
        measures: FallbackMeasures,
        is_ready: Callable[[str], bool],
        trouble: Callable[[str], str],
    ) -> None:
        self.log = log
        self.name = log.dc
        self.measures = measures
        self._config = config
        self._rng = rng
        self._is_ready = is_ready
        self._trouble = trouble
        self.breaker = make_breaker(config, rng)
        self._delays = {waits: make_delay(config, None) for waits in (False, True)}
        self.paths: dict[Path, None] = {}
        metrics = measures.metrics
        metrics.gauge("fallback_breaker_is_open", lambda: float(self.breaker.is_open), dc=self.name)
        metrics.gauge(
            "fallback_topics_with_open_breaker",
            lambda: sum(path.breaker.is_open for path in self.paths),
            dc=self.name,
        )

    @property
    def is_ready(self) -> bool:
        """Its administrator lets it be used, and its log knows of no trouble."""
        return self._is_ready(self.name) and not self._trouble(self.name)

    def delay(self, ack: Ack) -> AdaptiveDelay:
        """The hedge delay of all topics with this ack level."""
        return self._delays[ack is Ack.ALL]

    def path(self, ack: Ack) -> "Path":
        """One more topic's way into it."""
        path = Path(
            self,
            make_breaker(self._config, self._rng),
            make_delay(self._config, self.delay(ack)),
        )
        self.paths[path] = None
        return path


class Path:
    """One topic's way into one datacentre's log. Call `leave` when the topic is gone.

    Its own breaker protects it, the datacentre's spares it to learn what others know already. How
    many `partitions` the topic has there is None until the log has said so; `is_asked`: it is being
    asked.
    """

    def __init__(self, dc: Datacentre, breaker: Breaker, delay: AdaptiveDelay) -> None:
        self.dc = dc
        self.breaker = breaker
        self._delay = delay
        self.partitions: int | None = None
        self.is_asked = True
        self.on_open: Callable[[Path, float], None] = lambda _path, _now_s: None

    @property
    def name(self) -> str:
        """The datacentre's."""
        return self.dc.name

    @property
    def is_usable(self) -> bool:
        """Messages can be sent there, though it may not work."""
        return self.partitions is not None and self.dc.is_ready

    @property
    def is_open(self) -> bool:
        """Sending there makes no sense just now, but as a probe."""
        return self.breaker.is_open or self.dc.breaker.is_open

    def delay_s(self, now_s: float) -> float:
        """How long an acknowledgement from there is waited for before another is asked."""
        return self._delay.delay_s(now_s)

    def take_probe(self, now_s: float) -> bool:
        """Whether one message is to be sent there to find out. While all of the datacentre is
        away, its topics probe it together.
        """
        breaker = self.dc.breaker if self.dc.breaker.is_open else self.breaker
        return breaker.take_probe(now_s)

    def send(self, count: int, now_s: float) -> Sent:
        """An append of `count` messages goes out."""
        sent = Sent(count, now_s)
        self.breaker.add(sent)
        self.dc.breaker.add(sent)
        return sent

    def ended(
        self, sent: Sent, found: Sequence[Outcome], now_s: float, *, is_given_up: bool = False
    ) -> None:
        """The append has ended with these outcomes, or nobody waited for them any more: breakers
        and hedge delay learn from it.
        """
        breakers = (self.breaker, self.dc.breaker)
        if is_given_up:
            for breaker in breakers:
                breaker.forget(sent)
        elif stored_count(found):
            self._acknowledged(sent, now_s)
        elif all(type(each) is RefusedRecord for each in found):
            for breaker in breakers:
                breaker.answered(sent, now_s)
        else:
            own, shared = [breaker.failed(sent, now_s) for breaker in breakers]
            self._tell(own, shared, now_s)

    def _acknowledged(self, sent: Sent, now_s: float) -> None:
        delay_s = self.delay_s(now_s)
        self._delay.observe(now_s - sent.sent_s, sent.count, now_s)
        was_open = self.dc.breaker.is_open
        own = self.breaker.acknowledged(sent, delay_s, now_s)
        shared = self.dc.breaker.acknowledged(sent, delay_s, now_s)
        if was_open and not self.dc.breaker.is_open:
            for path in self.dc.paths:
                path.breaker.probe_soon(now_s)
        self._tell(own, shared, now_s)

    def check(self, now_s: float) -> None:
        """Notice silence."""
        delay_s = self.delay_s(now_s)
        own = self.breaker.check(delay_s, now_s)
        self._tell(own, self.dc.breaker.check(delay_s, now_s), now_s)

    def leave(self) -> None:
        """The topic is gone."""
        self.dc.paths.pop(self, None)

    def _tell(self, own: bool, shared: bool, now_s: float) -> None:
        dc = self.dc
        if own:
            dc.measures.opened(dc.name, self.breaker.cause.value, "topic").add()
        if shared:
            dc.measures.opened(dc.name, dc.breaker.cause.value, "dc").add()
            for path in list(dc.paths):
                path.on_open(path, now_s)
        elif own:
            self.on_open(self, now_s)


def make_breaker(config: FallbackConfig, rng: random.Random) -> Breaker:
    """A breaker as configured."""
    return Breaker(
        cap_s=config.speculative_send_delay_ms / 1_000,
        probe_interval_s=config.probe_interval_ms / 1_000,
        rng=rng,
    )


def make_delay(config: FallbackConfig, parent: AdaptiveDelay | None) -> AdaptiveDelay:
    """A hedge delay as configured."""
    return AdaptiveDelay(
        mode=config.hedge_mode,
        cap_s=config.speculative_send_delay_ms / 1_000,
        floor_s=config.hedge_floor_delay_ms / 1_000,
        quantile=config.hedge_quantile_percent / 100,
        parent=parent,
    )
