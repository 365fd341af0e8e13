"""`Hermes-Replay-Id`: a message that was published before is stored again under its own id."""

from urllib.parse import unquote

from msgspec import Struct

from hermes_actors.errors import Refused
from hermes_actors.model.names import is_name_part
from hermes_actors.publisher.head import Head

REPLAY_ID = "Hermes-Replay-Id"
REPLAY_FOR = "Hermes-Replay-For"
ID_CHARACTERS_MAX = 255


class Replayed(Struct, frozen=True):
    """Under which id the message is stored, and for which subscription alone; "" for all."""

    id: str
    only_for: str


def replay_of(head: Head) -> Replayed | None:
    """The replay that the head asks for, None when it asks for none.

    The id is percent-encoded UTF-8. Raises Refused for one that is empty, too long or not
    printable, for a name that no subscription can have, and for a subscription without an id.
    """
    raw_id, only_for = head.get("hermes-replay-id"), head.get("hermes-replay-for")
    if raw_id is None:
        if only_for is not None:
            raise Refused(f"{REPLAY_FOR} goes with {REPLAY_ID}; send the message's own id too")
        return None
    try:
        message_id = unquote(raw_id.strip(), errors="strict")
    except UnicodeDecodeError as error:
        raise Refused(f"{REPLAY_ID} is not percent-encoded UTF-8: {error.reason}") from error
    if not 0 < len(message_id) <= ID_CHARACTERS_MAX or not message_id.isprintable():
        raise Refused(
            f"{REPLAY_ID} is not an id: send 1 to {ID_CHARACTERS_MAX} printable characters, "
            "percent-encoded"
        )
    if only_for is not None and not is_name_part(only_for):
        raise Refused(
            f"{REPLAY_FOR}: no subscription is called so; send the name alone, without its topic"
        )
    return Replayed(message_id, only_for or "")
