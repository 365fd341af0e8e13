"""The launchers' commands, as pyproject.toml registers them for `hermes`."""

from hermes_local.compose_commands import compose
from hermes_local.kafka_commands import kafka

__all__ = ["compose", "kafka"]
