"""The way from an endpoint's host to a connection: look-up, guard, and the first address that
answers (Happy Eyeballs, RFC 8305). Runs on either loop.

Look-ups run in a bounded number of threads, one for each name at a time. What `getaddrinfo` waits
for cannot be cancelled: whoever asked may give up, but the thread ends by itself. The bound keeps
dead name servers from taking threads without end, and a bound for each domain keeps one of them
from taking them all.
"""

import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio
import trio

from hermes_actors.consumer.senders.sender import Origin
from hermes_actors.runtime.network_causes import name_cause
from hermes_actors.security.address_guard import AddressGuard, literal_address

LOOK_UPS_MAX = 16
"""Look-ups under way at once; more names wait their turn."""

OF_DOMAIN_MAX = 4
"""Look-ups under way at once for names with the same last two labels."""

KEPT_S = 1.0
"""How long an answer is used again: a burst of connections asks the name server once."""

_NAMES_KEPT_MAX = 1_000

Found = Sequence[str] | OSError
LookUp = Callable[[str], Sequence[str]]


def look_up(host: str) -> Sequence[str]:
    """A name's addresses in the order of preference (RFC 6724). Waits. Raises OSError."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise OSError(name_cause(error)) from error
    except ValueError as error:
        raise OSError(f"{host} is no host's name: {error}") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Resolver:
    """Looks names up. `post` runs a callback on the thread of the loops, from another thread."""

    def __init__(
        self,
        post: Callable[[Callable[[], None]], object],
        now_s: Callable[[], float],
        *,
        look_up: LookUp = look_up,
        look_ups_max: int = LOOK_UPS_MAX,
    ) -> None:
        self._post = post
        self._now_s = now_s
        self._look_up = look_up
        self._look_ups_max = look_ups_max
        self._under_way = 0
        self._asked: dict[str, list[Callable[[Found], None]]] = {}
        # By domain; the first is the next whose turn it is.
        self._waiting: dict[str, deque[str]] = {}
        self._busy: dict[str, int] = {}
        self._kept: dict[str, tuple[float, Sequence[str]]] = {}

    def resolve(self, host: str, done: Callable[[Found], None]) -> None:
        """Call `done` once with the host's addresses, or why there are none; perhaps at once."""
        literal = literal_address(host)
        if literal is not None:
            done([str(literal)])
            return
        kept = self._kept.get(host)
        if kept is not None and kept[0] > self._now_s():
            done(kept[1])
            return
        asked = self._asked.get(host)
        if asked is not None:
            asked.append(done)
            return
        self._asked[host] = [done]
        self._waiting.setdefault(_domain(host), deque()).append(host)
        self._start()

    def _start(self) -> None:
        while self._under_way < self._look_ups_max:
            may = (each for each in self._waiting if self._busy.get(each, 0) < OF_DOMAIN_MAX)
            domain = next(may, None)
            if domain is None:
                return
            hosts = self._waiting.pop(domain)
            host = hosts.popleft()
            if hosts:
                self._waiting[domain] = hosts
            self._busy[domain] = self._busy.get(domain, 0) + 1
            self._under_way += 1
            self._run(host)

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
                # The loop has ended meanwhile, and so have all who asked.
                return

        # Threads of this kind do not hold the process up when it ends.
        trio.lowlevel.start_thread_soon(in_thread, deliver, name="hermes look-up")

    def _on_found(self, host: str, found: Found) -> None:
        self._under_way -= 1
        domain = _domain(host)
        self._busy[domain] -= 1
        if not self._busy[domain]:
            del self._busy[domain]
        if not isinstance(found, OSError):
            self._keep(host, found)
        for done in self._asked.pop(host):
            done(found)
        self._start()

    def _keep(self, host: str, found: Sequence[str]) -> None:
        self._kept.pop(host, None)
        while len(self._kept) >= _NAMES_KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[host] = (self._now_s() + KEPT_S, found)


def _domain(host: str) -> str:
    return ".".join(host.lower().removesuffix(".").rsplit(".", 2)[-2:])


NEXT_ADDRESS_S = 0.25
"""How long an address is waited for before the next one is tried beside it."""

ADDRESSES_MAX = 8
"""How many addresses of a name are tried."""

T = TypeVar("T")


class ForbiddenAddress(OSError):
    """The guard allows none of the addresses; the message says why."""


async def allowed_addresses(
    origin: Origin, resolver: Resolver, guard: AddressGuard | None
) -> Sequence[str]:
    """Return the addresses that a connection to the origin may be tried at, in their order: without
    a `guard` all that it has.

    Raises ForbiddenAddress, and OSError when the look-up finds none.
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
            # Each waiter raises one of its own: a shared one would collect their tracebacks.
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
    """Connect to the first address that answers; each further one is tried beside those before.

    Returns the connections that stand, as a rule one; those after the first are for the caller to
    close. Raises the first of the `failures` when no address answers.
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
    """The addresses with their families in turns, the first one's first (RFC 8305, section 4)."""
    first = [each for each in addresses if (":" in each) == (":" in addresses[0])]
    others = [each for each in addresses if (":" in each) != (":" in addresses[0])]
    shared = min(len(first), len(others))
    pairs = [each for pair in zip(first, others, strict=False) for each in pair]
    return [*pairs, *first[shared:], *others[shared:]]
