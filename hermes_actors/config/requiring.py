"""Raises the error of a failed check: one sentence with the field and the remedy."""

from hermes_actors.errors import ConfigError


def require(holds: bool, message: str) -> None:
    """Raise ConfigError with `message` unless `holds`."""
    if not holds:
        raise ConfigError(message)
