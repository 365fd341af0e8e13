"""The configuration and the links that Hermes' console reads. `hermes_console.json` has Hermes'
defaults.
"""

from importlib.resources import files
from typing import Any
from urllib.parse import quote

import msgspec

from hermes_actors.config import ManagementConfig
from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.bodies.decoding import merge


class HermesConsole:
    """Methods are trio coroutines."""

    def __init__(self, config: ManagementConfig) -> None:
        self._config = config
        self._defaults = msgspec.json.decode(
            files(__package__).joinpath("hermes_console.json").read_bytes()
        )

    async def configuration(self) -> dict[str, Any]:
        """The configuration of Hermes' console."""
        config, own = self._config, self._config.console
        sources = [
            {"name": each, "placeholder": "The owner's name"} for each in config.owner_sources
        ]
        has_dashboards = bool(own.topic_dashboard_url and own.subscription_dashboard_url)
        known = {
            "console": {
                "title": own.title,
                "contactLink": own.contact_link,
                "environmentName": own.environment_name,
                "criticalEnvironment": own.critical_environment,
            },
            "metrics": {"fetchingDashboardUrlEnabled": has_dashboards},
            "owner": {"sources": sources},
            "group": {"nonAdminCreationEnabled": config.non_admin_group_creation},
        }
        return merge(self._defaults, known)

    async def dashboard(self, topic: str, name: str = "") -> dict[str, str]:
        """The metrics dashboard of a topic, or of one of its subscriptions. Raises Refused with
        IMPLEMENTATION_ABSENT if none is configured.
        """
        own = self._config.console
        url = own.subscription_dashboard_url if name else own.topic_dashboard_url
        if not url:
            raise Refused("Dashboard url implementation is absent", ErrorCode.IMPLEMENTATION_ABSENT)
        return {"url": _filled(url, topic, name)}

    async def tracking(self, topic: str, name: str = "") -> list[dict[str, str]]:
        """The pages with tracked messages of a topic, or of one of its subscriptions."""
        own = self._config.console
        url = own.subscription_tracking_url if name else own.topic_tracking_url
        return [{"name": "Tracking", "url": _filled(url, topic, name)}] if url else []


def _filled(url: str, topic: str, name: str) -> str:
    filled = url.replace("{topic}", quote(topic, safe=""))
    return filled.replace("{subscription}", quote(name, safe=""))
