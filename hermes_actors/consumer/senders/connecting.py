"""From an endpoint's host to a connection: look-up, guard, and the first address that answers
(Happy Eyeballs, RFC 8305). Works on both event loops.
"""

import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import zip_longest
from typing import TypeVar

import anyio
import trio

from hermes_actors.consumer.senders.sender import Origin
from hermes_actors.runtime.network_causes import name_cause
from hermes_actors.security.address_guard import AddressGuard, literal_address

LOOK_UPS_MAX = 32
"""Maximum number of concurrent look-ups. A thread in `getaddrinfo` cannot be cancelled."""

KEPT_S = 1.0
"""How long an answer is reused, so that a burst of connections asks the name server once."""

NEXT_ADDRESS_S = 0.25
"""How long to wait for one address before trying the next one in parallel."""

ADDRESSES_MAX = 8
"""Maximum number of addresses tried for a name."""

_NAMES_KEPT_MAX = 1_000

Found = Sequence[str] | OSError
LookUp = Callable[[str], Sequence[str]]


def look_up(host: str) -> Sequence[str]:
    """A name's addresses in order of preference (RFC 6724). Blocks. Raises OSError."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise OSError(name_cause(error)) from error
    except ValueError as error:
        raise OSError(f"{host} is no host's name: {error}") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Resolver:
    """Looks names up in threads; concurrent requests for one name share a look-up.

    `post` runs a callback on the event loops' thread; it is called from other threads.
    """

    def __init__(
        self,
        post: Callable[[Callable[[], None]], object],
        now_s: Callable[[], float],
        *,
        look_up: LookUp = look_up,
        look_ups_max: int = LOOK_UPS_MAX,
        kept_s: float = KEPT_S,
    ) -> None:
        """Answers are reused for `kept_s`."""
        self._post = post
        self._now_s = now_s
        self._look_up = look_up
        self._free = look_ups_max
        self._kept_s = kept_s
        self._asked: dict[str, list[Callable[[Found], None]]] = {}
        self._waiting: deque[str] = deque()
        self._kept: dict[str, tuple[float, Sequence[str]]] = {}

    def resolve(self, host: str, done: Callable[[Found], None]) -> None:
        """Call `done` once with the host's addresses or the error, possibly at once."""
        literal = literal_address(host)
        if literal is not None:
            done([str(literal)])
            return
        expires_s, addresses = self._kept.get(host, (float("-inf"), ()))
        if expires_s > self._now_s():
            done(addresses)
            return
        asked = self._asked.setdefault(host, [])
        asked.append(done)
        if len(asked) == 1:
            self._waiting.append(host)
            self._start()

    def _start(self) -> None:
        while self._free and self._waiting:
            self._free -= 1
            self._run(self._waiting.popleft())

    def _run(self, host: str) -> None:
        found: list[Found] = []

        def in_thread() -> None:
            try:
                found.append(self._look_up(host))
            except OSError as error:
                found.append(error)

        def deliver(_result: object) -> None:
            try:
                self._post(lambda: self._on_found(host, found[0]))
            except RuntimeError:
                # The loop has ended, and so have all callers.
                return

        # These threads do not delay the end of the process.
        trio.lowlevel.start_thread_soon(in_thread, deliver, name="hermes look-up")

    def _on_found(self, host: str, found: Found) -> None:
        self._free += 1
        if not isinstance(found, OSError):
            self._kept.pop(host, None)
            if len(self._kept) >= _NAMES_KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            self._kept[host] = (self._now_s() + self._kept_s, found)
        for done in self._asked.pop(host):
            done(found)
        self._start()


T = TypeVar("T")


class ForbiddenAddress(OSError):
    """The guard allows none of the addresses; the message says why."""


async def allowed_addresses(
    origin: Origin, resolver: Resolver, guard: AddressGuard | None
) -> Sequence[str]:
    """The addresses to try for a connection to the origin, in order. Without a `guard`, all of
    them.

    Raises ForbiddenAddress, and OSError if the look-up finds none.
    """
    found = [origin.address] if origin.address else await _look_up(origin.host, resolver)
    if guard is not None:
        refusals = [guard.refusal(origin.host, each) for each in found]
        found = [each for each, no in zip(found, refusals, strict=True) if not no]
        if not found:
            raise ForbiddenAddress(refusals[0])
    return interleaved(found)[:ADDRESSES_MAX]


async def _look_up(host: str, resolver: Resolver) -> Sequence[str]:
    answers: list[Found] = []
    answered = anyio.Event()

    def on_found(answer: Found) -> None:
        answers.append(answer)
        answered.set()

    resolver.resolve(host, on_found)
    await answered.wait()
    match answers[0]:
        case OSError() as error:
            # Each waiter gets its own exception; a shared one would collect their tracebacks.
            raise OSError(*error.args)
        case addresses if addresses:
            return addresses
        case _:
            raise OSError("the name has no address")


async def connect_to_first(
    addresses: Sequence[str],
    connect: Callable[[str], Awaitable[T]],
    failures: tuple[type[Exception], ...] = (OSError, ValueError),
) -> list[T]:
    """Connect to the first address that answers; further addresses are tried in parallel after a
    while.

    Returns the open connections, usually one; the caller must close the others. Raises the first of
    the `failures` if no address answers.
    """
    if len(addresses) == 1:
        return [await connect(addresses[0])]
    made: list[T] = []
    problems: list[Exception] = []

    async def attempt(address: str, ended: anyio.Event) -> None:
        try:
            made.append(await connect(address))
        except failures as error:
            problems.append(error)
        else:
            attempts.cancel_scope.cancel()
        finally:
            ended.set()

    async with anyio.create_task_group() as attempts:
        for address in addresses:
            ended = anyio.Event()
            attempts.start_soon(attempt, address, ended)
            with anyio.move_on_after(NEXT_ADDRESS_S):
                await ended.wait()
    if not made:
        raise problems[0]
    return made


def interleaved(addresses: Sequence[str]) -> list[str]:
    """The addresses, IPv4 and IPv6 alternating, starting with the first one's family
    (RFC 8305, 4).
    """
    is_six = ":" in addresses[0]
    first = [each for each in addresses if (":" in each) is is_six]
    others = [each for each in addresses if (":" in each) is not is_six]
    return [each for pair in zip_longest(first, others) for each in pair if each is not None]
