"""Identifies publishers, and decides whether they may publish to a topic, before a message gets its
id.

Two modes, which Hermes has from Undertow. `constraint_driven`: credentials are checked only where
the topic demands them; missing or bad ones get 401. Elsewhere everybody is a guest, with or without
credentials. `pro_active`: credentials are always checked, and bad ones get 401. A request without
credentials comes from a guest, and the topic decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hermes_actors.errors import ErrorCode, HermesError, Refused
from hermes_actors.model.topic import PublishingAuth
from hermes_actors.publisher.answers import SHUTTING_DOWN, Answer, error_answer
from hermes_actors.publisher.demands import Head
from hermes_actors.publisher.drain import Drain
from hermes_actors.publisher.measures import FrontendMeasures
from hermes_actors.publisher.pending import Route
from hermes_actors.security.account import (
    PUBLISHER,
    Account,
    Credentials,
    Unauthenticated,
    sole_authorization,
)
from hermes_actors.security.authenticator import Authenticator


def demands_account(auth: PublishingAuth) -> bool:
    """True if the topic accepts no guests."""
    return auth.enabled and not auth.unauthenticated_access_enabled


def may_publish(auth: PublishingAuth, account: Account | None) -> bool:
    """True if this account, or a guest (None), may publish to a topic with this `auth`."""
    if not auth.enabled:
        return True
    if account is None:
        return auth.unauthenticated_access_enabled
    return PUBLISHER in account.roles and account.name in auth.publishers


def forbidden(topic: str, account: Account | None) -> Refused:
    """The error for an author who may not publish to the topic (403)."""
    if account is None:
        reason = "it accepts no messages from clients without an account"
    elif PUBLISHER in account.roles:
        reason = f"{account.name} is not one of its auth.publishers"
    else:
        reason = f"{account.name} does not have the role {PUBLISHER}"
    return Refused(
        f"Permission denied to publish to topic {topic}: {reason}; publishers need the role "
        f"{PUBLISHER} and their name in the topic's auth.publishers",
        ErrorCode.AUTH_ERROR,
    )


@dataclass(eq=False)
class PublishSecurity:
    """Identifies the authors of publishes with the node's authenticator, in the configured mode.

    `routes` is the router's own mapping, which changes while the node runs.
    """

    authenticator: Authenticator
    is_pro_active: bool
    routes: Mapping[str, Route]
    drain: Drain
    measures: FrontendMeasures

    def asks(self, topic: str) -> bool:
        """True if a publish to the topic needs `identify`; else its author is a guest."""
        return self.is_pro_active or self._is_demanded(topic)

    def _is_demanded(self, topic: str) -> bool:
        route = self.routes.get(topic)
        return route is not None and demands_account(route.topic.auth)

    async def identify(self, topic: str, head: Head) -> Answer | None:
        """Put the author's account into `head`. Returns an answer if the request ends here: 400
        (several Authorization headers), 401 or 503.

        Called before `Gateway.admit`, on the host loop or in trio, if the topic `asks` for it.
        """
        if self.drain.is_refusing:
            return SHUTTING_DOWN
        is_demanded = self._is_demanded(topic)
        lines = [value for name, value in head.pairs() if name.lower() == "authorization"]
        try:
            credentials = Credentials(
                sole_authorization(lines),
                head.certificate,
                lambda name: head.get(name) or "",
            )
            head.account = await self.authenticator.identify(credentials)
            if head.account is None and is_demanded and not self.is_pro_active:
                raise self.authenticator.refusal("Credentials are required here")
        except Unauthenticated as error:
            return self._counted(Answer(error.status, headers=error.headers, closes=True))
        except HermesError as error:
            return self._counted(error_answer(error, "", closes=True))
        return None

    def _counted(self, answer: Answer) -> Answer:
        self.measures.status(answer.status).add()
        return answer
