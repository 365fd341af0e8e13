"""The one error of a configuration."""

from hermes_actors.errors import ErrorCode, HermesError


class ConfigError(HermesError):
    """The configuration is wrong; the message names the field, why, and what would be right."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.VALIDATION_ERROR)
