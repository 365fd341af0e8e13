"""Decides when to restart an actor, and when to give up. Pure: time and randomness are arguments.

The terms are OTP's: kind, intensity, period. Unlike in OTP, the intensity is counted per child,
because one supervisor has hundreds of unrelated tenants. The backoff has jitter, so that actors
that failed together do not restart together.
"""

import random
from collections import deque
from dataclasses import dataclass
from enum import Enum

from hermes_actors.runtime.backoff import backoff_s


class RestartKind(Enum):
    """When an actor is restarted after it has ended."""

    PERMANENT = "permanent"  # always, also after a normal end
    TRANSIENT = "transient"  # only after a failure
    TEMPORARY = "temporary"  # never


@dataclass(frozen=True)
class RestartPolicy:
    """The restart policy of one child.

    `restarts_max` restarts within `period_s` are allowed, and one more escalates; None means no
    limit. The wait before a restart is drawn from [½, 1] × min(max, first × 2ⁿ), after n restarts
    in a row.
    """

    kind: RestartKind = RestartKind.TRANSIENT
    restarts_max: int | None = 5
    period_s: float = 60.0
    backoff_first_s: float = 0.1
    backoff_max_s: float = 30.0

    def __post_init__(self) -> None:
        assert self.restarts_max is None or self.restarts_max >= 0
        assert 0 < self.backoff_first_s <= self.backoff_max_s
        assert self.period_s > 0


INFRASTRUCTURE = RestartPolicy(restarts_max=5, period_s=60.0, backoff_max_s=5.0)
"""Escalates: if a part that the whole node needs does not recover, the process ends."""

TENANT = RestartPolicy(restarts_max=None, backoff_max_s=300.0)
"""Never gives up: a broken topic or subscription must not take the node down."""


class RestartHistory:
    """Records the restarts of one child, and decides on the next one."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._restarts: deque[float] = deque()
        self._in_a_row = 0
        self._last_s: float | None = None

    def next_delay_s(self, now_s: float, *, failed: bool, rng: random.Random) -> float | None:
        """The wait before the next start, in seconds. None if the child is not restarted: its kind
        forbids it, or the intensity is exceeded (`gave_up`).
        """
        policy = self._policy
        if policy.kind is RestartKind.TEMPORARY:
            return None
        if policy.kind is RestartKind.TRANSIENT and not failed:
            return None
        while self._restarts and self._restarts[0] <= now_s - policy.period_s:
            self._restarts.popleft()
        self._restarts.append(now_s)
        if policy.restarts_max is not None and len(self._restarts) > policy.restarts_max:
            return None
        # A child without a limit needs no list, which would grow.
        if policy.restarts_max is None:
            self._restarts.clear()
        if self._last_s is not None and now_s - self._last_s > max(
            policy.period_s, 2 * policy.backoff_max_s
        ):
            self._in_a_row = 0
        self._last_s = now_s
        self._in_a_row += 1
        return backoff_s(
            self._in_a_row - 1, rng.random(), policy.backoff_first_s, policy.backoff_max_s
        )

    @property
    def gave_up(self) -> bool:
        """True if the restart intensity is exceeded."""
        maximum = self._policy.restarts_max
        return maximum is not None and len(self._restarts) > maximum
