"""The accounts that may publish to a node and administer it."""

import logging

from hermes_actors.management.access.accounts import AccountProvider
from hermes_actors.management.access.roles import SecurityProvider
from hermes_actors.node.environment import NodeEnvironment
from hermes_actors.node.running import Node
from hermes_actors.security.authenticator import Authenticator
from hermes_actors.security.opening import open_authenticator

_logger = logging.getLogger(__name__)


async def open_authenticating(node: Node, environment: NodeEnvironment) -> Authenticator | None:
    """The mechanisms by which accounts are known, if anybody is asked. Raises StartupError."""
    config = node.config
    if not (config.frontend.authentication.enabled or config.management.authentication.enabled):
        if fields := config.security.mechanism_fields:
            _logger.warning(
                "nobody is asked who he is: %s without effect; set frontend.authentication.enabled "
                "or management.authentication.enabled to true, or leave the mechanisms out",
                f"{', '.join(fields)} {'is' if len(fields) == 1 else 'are'}",
            )
        return None
    authenticator = await open_authenticator(config.security, environment.clock, environment.ids)
    node.metrics.append(authenticator.metrics)
    authenticator.start(node.control)
    return authenticator


def security_of_management(node: Node) -> SecurityProvider | None:
    """Return the provider that tells who may administer; None: everybody may."""
    config = node.config.management.authentication
    if node.authenticator is None or not config.enabled:
        return None
    return AccountProvider(node.authenticator, config)
