"""Host names to addresses: look-ups in a bounded number of threads, one for each name at a time.

What `getaddrinfo` waits for cannot be cancelled: whoever asked may give up, but the thread ends by
itself. The bound keeps dead name servers from taking threads without end, and a bound for each
domain keeps one of them from taking them all.
"""

import socket
from collections import deque
from collections.abc import Callable, Sequence

import trio

from hermes_actors.runtime.network_causes import name_cause
from hermes_actors.security.address_guard import literal_address

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
