"""How a check of the configuration fails: by one sentence with the field and the way out."""

from hermes_actors.errors import ConfigError


def require(holds: bool, message: str) -> None:
    """Raise ConfigError unless it holds."""
    if not holds:
        raise ConfigError(message)
