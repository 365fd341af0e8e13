"""The mechanisms of one node: the first that knows the credentials decides."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import trio

from hermes_actors.actors.restart import TENANT
from hermes_actors.actors.supervisor import Supervisor
from hermes_actors.security.account import (
    Account,
    BadCredentials,
    Credentials,
    Mechanism,
    Unauthenticated,
)
from hermes_actors.security.watched import Watched
from hermes_actors.telemetry.metrics import Metrics, meanings

SECURITY = meanings(
    "hermes_security",
    authentications=("requests", "Callers that were identified or refused"),
)


class Authenticator:
    """Identifies authors by the given mechanisms, asked in their order. See `open_authenticator`.

    `metrics` has the prefix `hermes_security`; `watched` is what the mechanisms read again.
    """

    def __init__(
        self,
        mechanisms: Sequence[Mechanism],
        metrics: Metrics | None = None,
        watched: Sequence[Watched[Any]] = (),
    ) -> None:
        self.metrics = (
            metrics if metrics is not None else Metrics("hermes_security", meanings=SECURITY)
        )
        self.watched = watched
        self._mechanisms = tuple(mechanisms)
        self._identified = self.metrics.counter("authentications", result="identified")
        self._refused = self.metrics.counter("authentications", result="refused")

    @property
    def challenges(self) -> tuple[str, ...]:
        """Give the credentials to ask for, one WWW-Authenticate header for each mechanism that has
        one.
        """
        return tuple(each.challenge for each in self._mechanisms if each.challenge)

    async def identify(self, credentials: Credentials) -> Account | None:
        """The account; None when the request shows no credentials.

        Raises Unauthenticated (401) when they do not hold or no mechanism knows their scheme,
        and Unavailable (503) when nobody can say now. On either loop.
        """
        try:
            for mechanism in self._mechanisms:
                account = await mechanism.identify(credentials)
                if account is not None:
                    self._identified.add()
                    return account
        except BadCredentials as error:
            raise self.refusal(str(error)) from error
        if credentials.authorization:
            raise self.refusal("The Authorization header is of a scheme that is not taken here")
        return None

    def refusal(self, reason: str) -> Unauthenticated:
        """The error for missing or bad credentials; counts it."""
        self._refused.add()
        return Unauthenticated(reason, self.challenges)

    def start(self, supervisor: Supervisor) -> None:
        """Start the mechanisms' background work, a task for each.

        One that stays broken, a plug-in whose directory is away, takes neither the others nor the
        node down.
        """
        for place, mechanism in enumerate(self._mechanisms):
            supervisor.start_task(f"security-{place}", partial(_run, mechanism), restart=TENANT)


async def _run(mechanism: Mechanism, _stop: trio.Event) -> None:
    # It ends by itself, or is cancelled.
    await mechanism.run()
