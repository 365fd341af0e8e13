"""The launchers' commands, under the names that pyproject.toml gives to `hermes`."""

from hermes_local.compose_commands import compose
from hermes_local.kafka_commands import kafka

__all__ = ["compose", "kafka"]
