"""The kit's fixtures, as its users have them: here no entry point is installed."""

from hermes_actors.testing.plugin import hermes, hermes_broker

__all__ = ["hermes", "hermes_broker"]
