"""Every address that a host's name has, from a cache that is refreshed beside the deliveries.

An answer counts for `ttl_s`; then it serves on while it is asked for again, and for a minute when
nobody answers: a name server that is away must not end deliveries. IPv4 addresses are taken where
there are any, else IPv6: a machine that has both is one recipient.
"""

from collections.abc import Callable, Sequence

import trio
from msgspec import Struct

from hermes_actors.consumer.senders.connecting import Found, Resolver

NAMES_MAX = 1_000
"""The most names that are kept."""

_STALE_S = 60.0
_FAILURE_S = 1.0


def after(delay_s: float, callback: Callable[[], None]) -> None:
    """Call `callback` after the delay, on trio; it must not raise. Never waits."""

    async def wait() -> None:
        await trio.sleep(delay_s)
        callback()

    trio.lowlevel.spawn_system_task(wait)


class _Name(Struct, eq=False):
    """`good_s` is when an answer came last, `asked_s` when one is to be asked for again."""

    addresses: tuple[str, ...] = ()
    problem: str = ""
    good_s: float = float("-inf")
    asked_s: float = float("-inf")
    waiting: list[Callable[[], None]] | None = None

    @property
    def is_known(self) -> bool:
        return bool(self.addresses or self.problem)


class Names:
    """The addresses of names. Times are monotonic seconds."""

    def __init__(
        self,
        look_ups: Resolver,
        now_s: Callable[[], float],
        ttl_s: float,
        later: Callable[[float, Callable[[], None]], object] = after,
    ) -> None:
        """`later` calls something after so many seconds, for whoever waits for an answer."""
        self.later = later
        self._look_ups = look_ups
        self._now_s = now_s
        self._ttl_s = ttl_s
        self._names: dict[str, _Name] = {}

    def require(self, host: str, done: Callable[[], None]) -> bool:
        """True when `addresses` can say something of the host now; else `done` is called once it
        can. Where the answer is old, another is asked for.
        """
        name = self._names.get(host) or self._add(host)
        now_s = self._now_s()
        is_known = name.is_known
        if name.waiting is None and now_s >= name.asked_s:
            name.waiting = []
            self._look_ups.resolve(host, lambda found: self._on_found(name, found))
            # It may have been answered at once.
            is_known = name.is_known
        if not is_known:
            assert name.waiting is not None, "what is not known is being asked for"
            name.waiting.append(done)
        return is_known

    def is_known(self, host: str) -> bool:
        """True when `addresses` or `problem` say something of the host."""
        name = self._names.get(host)
        return name is not None and name.is_known

    def addresses(self, host: str) -> tuple[str, ...]:
        """The host's addresses, sorted; none: see `problem`."""
        name = self._names.get(host)
        return () if name is None else name.addresses

    def problem(self, host: str) -> str:
        """Return why the host has no addresses."""
        name = self._names.get(host)
        return "the name was not looked up" if name is None else name.problem

    def _add(self, host: str) -> _Name:
        while len(self._names) >= NAMES_MAX:
            # Who waits for it still hears of it.
            del self._names[next(iter(self._names))]
        name = self._names[host] = _Name()
        return name

    def _on_found(self, name: _Name, found: Found) -> None:
        now_s = self._now_s()
        if isinstance(found, OSError) or not found:
            name.asked_s = now_s + _FAILURE_S
            if now_s - name.good_s > self._ttl_s + _STALE_S:
                name.addresses = ()
                name.problem = _why(found)
        else:
            name.addresses = one_family(found)
            name.problem = ""
            name.good_s = now_s
            name.asked_s = now_s + self._ttl_s
        waiting, name.waiting = name.waiting, None
        for done in waiting or ():
            done()


def one_family(addresses: Sequence[str]) -> tuple[str, ...]:
    """The IPv4 addresses, or else the IPv6 ones, sorted: name servers change their order."""
    unique = dict.fromkeys(addresses)
    return tuple(sorted(each for each in unique if ":" not in each) or sorted(unique))


def _why(found: Found) -> str:
    return str(found) or repr(found) if isinstance(found, OSError) else "the name has no address"
