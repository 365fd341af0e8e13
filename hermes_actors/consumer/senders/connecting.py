"""The way from an endpoint's host to a connection: look-up, guard, and the first address that
answers (Happy Eyeballs, RFC 8305). Runs on either loop.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

from hermes_actors.consumer.senders.resolving import Found, Resolver
from hermes_actors.consumer.senders.sender import Origin
from hermes_actors.security.address_guard import AddressGuard

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
