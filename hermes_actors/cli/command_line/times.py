"""Times on the command line: one form everywhere, those without a zone in the user's own."""

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.model.moments import FORMS, is_of_some_zone, iso_ms, moment_ms

TIME_HELP = "2030-01-31T12:00:00Z, or how long ago: 30m, 1h, 2d"


def time_to_send(option: str, text: str, instead: str = "") -> str:
    """The time as it is sent: how long ago goes by the server's clock, so it stays as it is.

    `instead` names what else may be given, for the error. Raises UsageWrong.
    """
    try:
        time_ms = moment_ms(text, 0, zone=None)
    except ValueError as error:
        raise UsageWrong(f"{option} '{text}': expected {instead}{FORMS}") from error
    return iso_ms(time_ms) if is_of_some_zone(text) else text.strip()


def optional_time(option: str, text: str | None) -> str | None:
    """The same for an option that need not be given."""
    return None if text is None else time_to_send(option, text)
