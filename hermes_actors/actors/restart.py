"""When to restart a failed actor, and when to give up. Pure: time and randomness are arguments.

The words are OTP's: kind, intensity, period. Intensity is counted for each child, because one
supervisor has hundreds of unrelated tenants. The backoff is jittered so that actors that failed
together do not come back together.
"""

import random
from collections import deque
from dataclasses import dataclass
from enum import Enum

from hermes_actors.runtime.backoff import backoff_s


class RestartKind(Enum):
    """The ends of an actor after which it is restarted: all, failures only, or none."""

    PERMANENT = "permanent"  # always restarted, also after a normal end
    TRANSIENT = "transient"  # restarted after a failure only
    TEMPORARY = "temporary"  # never restarted


@dataclass(frozen=True)
class RestartPolicy:
    """How one child is restarted.

    `restarts_max` restarts within `period_s` are allowed, one more escalates; None never gives up.
    The wait before the n-th restart in a row is drawn from [½, 1] × min(max, first × 2ⁿ).
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
"""Escalates: what the whole node needs either comes back soon or takes the process down."""

TENANT = RestartPolicy(restarts_max=None, backoff_max_s=300.0)
"""Never gives up: one poisoned topic or subscription must not take a node down."""


class RestartHistory:
    """The failures of one child, and the decision that follows from them."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._restarts: deque[float] = deque()
        self._in_a_row = 0
        self._last_s: float | None = None

    def next_delay_s(self, now_s: float, *, failed: bool, rng: random.Random) -> float | None:
        """The wait before the next start, or None when there shall be none.

        None after a failure of a TEMPORARY child, or after more restarts than allowed; tell these
        apart by `gave_up`.
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
        # The bounded list is what intensity needs; a child that never gives up needs no list.
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
        """True when the restart intensity was exceeded."""
        maximum = self._policy.restarts_max
        return maximum is not None and len(self._restarts) > maximum
