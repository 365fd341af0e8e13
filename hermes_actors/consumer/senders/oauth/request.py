"""One token request: a push of HTTP/1.1, guarded and bounded as any other, whose answer is read."""

from urllib.parse import urlsplit

import trio

from hermes_actors import __version__
from hermes_actors.consumer.senders.oauth.wire import Answer, Denied, OAuthCredentials, read_answer
from hermes_actors.consumer.senders.sender import (
    Origin,
    Push,
    PushRoute,
    Sender,
    SendOutcome,
    Witness,
)

ANSWER_BYTES_MAX = 65_536

_PORTS = {"http": 80, "https": 443}
_LINES = (
    f"User-Agent: hermes_actors/{__version__}\r\n"
    "Accept: application/json\r\n"
    "Content-Type: application/x-www-form-urlencoded\r\n"
    "Connection: close\r\n"
).encode("ascii")


async def ask_for_token(sender: Sender, credentials: OAuthCredentials) -> Answer:
    """Ask the provider for a token, within its time-outs. Redirects are not followed.

    A trio coroutine: what goes wrong is a `Denied` that says what. `sender` needs no route's
    `start`.
    """
    provider = credentials.provider
    parts = urlsplit(provider.token_endpoint)
    try:
        host = (parts.hostname or "").encode("idna").decode("ascii")
        origin = Origin(parts.scheme, host, parts.port or _PORTS[parts.scheme])
    except (ValueError, KeyError):
        return Denied("its tokenEndpoint cannot be read")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    target = target.encode("ascii", "xmlcharrefreplace").decode("ascii")
    witness = Witness(ANSWER_BYTES_MAX)
    push = Push(
        PushRoute(f"OAuth provider {provider.name}", origin, target, b""),
        _LINES,
        credentials.form,
        provider.request_timeout,
        provider.socket_timeout,
        witness=witness,
    )
    outcomes: list[SendOutcome] = []
    answered = trio.Event()

    def done(outcome: SendOutcome) -> None:
        outcomes.append(outcome)
        answered.set()

    sender.send(push, done)
    await answered.wait()
    (outcome,) = outcomes
    if outcome.failure is not None:
        return Denied(f"{origin}: {outcome.detail}")
    if witness.is_cut:
        return Denied(f"its answer is longer than {ANSWER_BYTES_MAX} bytes")
    return read_answer(outcome.status, witness.body)
