"""Errors, by what the caller does next: correct the request (Refused) or retry (Unavailable)."""

from enum import Enum


class ErrorCode(Enum):
    """The codes in Hermes' error bodies, each with its HTTP status."""

    def __init__(self, _ordinal: int, status: int) -> None:
        self.status = status

    TIMEOUT = (1, 408)
    SENDING_TO_KAFKA_TIMEOUT = (2, 503)
    THROUGHPUT_QUOTA_VIOLATION = (3, 429)
    VALIDATION_ERROR = (4, 400)
    FORMAT_ERROR = (5, 400)
    INVALID_QUERY = (6, 400)
    INTERNAL_ERROR = (7, 500)
    OTHER = (8, 500)
    GROUP_NOT_EXISTS = (10, 404)
    GROUP_ALREADY_EXISTS = (11, 400)
    GROUP_NAME_IS_INVALID = (12, 400)
    GROUP_NOT_EMPTY = (13, 403)
    TOPIC_NOT_EXISTS = (20, 404)
    TOPIC_ALREADY_EXISTS = (21, 400)
    TOPIC_NOT_EMPTY = (22, 403)
    # Hermes answers 400, not 404, and its clients depend on it.
    SUBSCRIPTION_NOT_EXISTS = (30, 400)
    SUBSCRIPTION_ALREADY_EXISTS = (31, 400)
    MOVING_SUBSCRIPTION_OFFSETS_VALIDATION_ERROR = (32, 400)
    UNABLE_TO_MOVE_OFFSETS_EXCEPTION = (33, 500)
    PARTITIONS_NOT_FOUND_FOR_TOPIC = (34, 404)
    BROKERS_CLUSTER_NOT_FOUND_EXCEPTION = (35, 404)
    PERMISSION_DENIED = (40, 403)
    AUTH_ERROR = (41, 403)
    OPERATION_DISABLED = (42, 406)
    IMPLEMENTATION_ABSENT = (43, 404)
    OWNER_SOURCE_NOT_FOUND = (50, 404)
    OWNER_NOT_FOUND = (51, 404)
    OWNER_SOURCE_DOESNT_SUPPORT_AUTOCOMPLETE = (52, 400)
    OAUTH_PROVIDER_NOT_EXISTS = (53, 404)
    OAUTH_PROVIDER_ALREADY_EXISTS = (54, 400)
    SCHEMA_COULD_NOT_BE_LOADED = (60, 500)
    SCHEMA_BAD_REQUEST = (61, 400)
    SCHEMA_ALREADY_EXISTS = (62, 400)
    SCHEMA_VERSION_DOES_NOT_EXIST = (63, 400)


class HermesError(Exception):
    """The base of all operating errors. Programming errors are asserts."""

    headers: tuple[tuple[str, str], ...] = ()
    """Further headers of the answer, for example when to retry."""

    def __init__(self, message: str, code: ErrorCode, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = code.status if status is None else status


class Refused(HermesError):
    """The request must be changed. The message names the field, the reason and the correction."""

    def __init__(
        self,
        message: str,
        code: ErrorCode = ErrorCode.VALIDATION_ERROR,
        status: int | None = None,
    ) -> None:
        super().__init__(message, code, status)


class Unavailable(HermesError):
    """The request is correct, but something in the broker is down or full. It may be retried."""

    def __init__(
        self,
        message: str,
        code: ErrorCode = ErrorCode.OTHER,
        status: int | None = 503,
    ) -> None:
        super().__init__(message, code, status)


class StartupError(HermesError):
    """The process cannot start. It prints the message and exits with code 1."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.OTHER)


class DamageFound(StartupError):
    """Acknowledged messages are missing or damaged. The text gives their number and what to do."""


class ConfigError(HermesError):
    """The configuration is invalid. The message names the field, the reason and the correction."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.VALIDATION_ERROR)
