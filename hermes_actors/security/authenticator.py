"""The mechanisms of one node. The first one that recognises the credentials decides."""

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
    """Identifies authors with the given mechanisms, in this order. See `open_authenticator`.

    `metrics` has the prefix `hermes_security`. `watched`: the files and URLs that the mechanisms
    watch.
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
        """The WWW-Authenticate headers of the mechanisms."""
        return tuple(each.challenge for each in self._mechanisms if each.challenge)

    async def identify(self, credentials: Credentials) -> Account | None:
        """The account; None if the request has no credentials. May be awaited on either loop.

        Raises Unauthenticated (401) if they are invalid or no mechanism knows their scheme, and
        Unavailable (503) if they cannot be checked now.
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
            raise self.refusal("The scheme of the Authorization header is not accepted here")
        return None

    def refusal(self, reason: str) -> Unauthenticated:
        """The error for missing or invalid credentials. It is counted."""
        self._refused.add()
        return Unauthenticated(reason, self.challenges)

    def start(self, supervisor: Supervisor) -> None:
        """Start the mechanisms' background work, one task each.

        A mechanism that keeps failing, for example a plug-in whose directory service is down, does
        not affect the others or the node.
        """
        for place, mechanism in enumerate(self._mechanisms):
            supervisor.start_task(f"security-{place}", partial(_run, mechanism), restart=TENANT)


async def _run(mechanism: Mechanism, _stop: trio.Event) -> None:
    # It needs no event to stop: it ends by itself, or is cancelled.
    await mechanism.run()
