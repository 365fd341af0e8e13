"""The recipients of a message: one address of several (ANYCAST), or all of them (BROADCAST).

Addresses come from a resolver of the operator's, or else from the endpoint itself: those it lists,
and, with `{"resolve": "dns"}` in endpointAddressResolverMetadata, each address of their hosts.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import trio
from msgspec import Struct

from hermes_actors.consumer.recipients.endpoint import (
    SCHEMES,
    Endpoint,
    Unresolved,
    at_address,
    parse_endpoint,
    parse_endpoints,
    without_credentials,
)
from hermes_actors.consumer.recipients.resolver import Asked, EndpointResolver
from hermes_actors.consumer.senders.connecting import Found, Resolver
from hermes_actors.consumer.senders.sender import PushRoute
from hermes_actors.errors import Refused
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.endpoints import split_addresses
from hermes_actors.model.message import Message
from hermes_actors.model.redaction import HIDDEN, redacted, without_secrets
from hermes_actors.security.address_guard import literal_address

_logger = logging.getLogger(__name__)

_PARSED_MAX = 1_000
_SAID_EACH_S = 60.0
RESOLVE, DNS, HOSTS = "resolve", "dns", "hosts"
"""The keys that the built-in resolver reads in endpointAddressResolverMetadata."""


class Recipient(Struct, frozen=True):
    """One that is to get a message; `key` tells it from others. `route` is None where `problem`
    says why it cannot be reached.
    """

    key: str
    route: PushRoute | None
    authorization: str = ""
    problem: str = ""

    def __repr__(self) -> str:
        return redacted(self, authorization=HIDDEN)

    @property
    def name(self) -> str:
        """For people: the key without its query, which may hold a token."""
        return self.key.partition("?")[0]


class Settings(Struct, frozen=True):
    """The settings of the built-in resolver, from a subscription's metadata."""

    is_dns: bool = False
    hosts: tuple[str, ...] = ()

    @classmethod
    def of(cls, live: LiveSubscription) -> "Settings":
        """Read them; what is not known is left to resolvers of others. Raises Refused."""
        metadata = live.subscription.endpoint_address_resolver_metadata
        path = "endpointAddressResolverMetadata"
        if metadata.get(RESOLVE) not in (None, DNS):
            raise Refused(f'{path}.{RESOLVE}: the only way is "{DNS}"; leave it out for none')
        hosts = metadata.get(HOSTS) or []
        if not isinstance(hosts, list) or not all(isinstance(each, str) for each in hosts):
            raise Refused(f'{path}.{HOSTS} is a list of hosts such as "*.orders.example.com"')
        return cls(metadata.get(RESOLVE) == DNS, tuple(each.lower() for each in hosts))


OnFound = Callable[["list[Recipient] | Unresolved"], None]


class Recipients:
    """The recipients of one version of a subscription. Raises Refused for a wrong endpoint.

    A proxy looks the names of hosts that are proxied up itself: they stay one address each.
    `other_schemes` have senders too; one of them is that of all addresses of an endpoint, or none.
    `single` is the endpoint when it is all there is to know: one address, and nothing resolves it.
    """

    def __init__(
        self,
        live: LiveSubscription,
        resolver: EndpointResolver | None,
        names: Resolver | None,
        *,
        other_schemes: tuple[str, ...] = (),
        is_proxied: Callable[[str], bool] | None = None,
        addresses_max: int,
        now_s: Callable[[], float],
    ) -> None:
        self._live = live
        self._subscription = str(live.name)
        self._resolver = resolver
        self._names = names
        self._is_proxied = is_proxied
        self._addresses_max = addresses_max
        self._now_s = now_s
        self._said_s = float("-inf")
        self._turn = 0
        self._parsed: dict[str, Endpoint] = {}
        subscription = live.subscription
        scheme = subscription.endpoint.partition("://")[0].lower()
        self._schemes = (scheme,) if scheme in other_schemes else SCHEMES
        self._metadata = subscription.endpoint_address_resolver_metadata
        self._problem = ""
        self._endpoints: tuple[Endpoint, ...] = ()
        self._settings = Settings()
        try:
            self._settings = Settings.of(live)
            self._endpoints = parse_endpoints(
                subscription.endpoint, self._subscription, self._settings.hosts, self._schemes
            )
            if len(self._endpoints) > addresses_max:
                raise Refused(
                    f"endpoint: {len(self._endpoints)} addresses; at most {addresses_max} are "
                    "pushed to (consumers.recipients.addresses_max)"
                )
        except Refused as error:
            # It may mean something to the operator's resolver.
            if resolver is None:
                raise
            self._problem = error.message
        parts = [without_credentials(each) for each in split_addresses(subscription.endpoint)]
        self._plain_endpoint = ";".join(address for address, _ in parts)
        # What a resolver makes of several addresses is none of them: it gets nobody's credentials.
        self._authorization = parts[0][1] if len(parts) == 1 else ""
        is_single = resolver is None and len(self._endpoints) == 1 and not self._settings.is_dns
        self.single = self._endpoints[0] if is_single else None

    @property
    def is_by_message(self) -> bool:
        """True when an address is filled from the message."""
        return any(each.is_template for each in self._endpoints)

    def find_all(self, message: Message, timeout_s: float, done: OnFound) -> None:
        """Tell `done` all recipients now, or when their names have been looked up, or that they
        have not been within the time.
        """
        self._find(message, timeout_s, done, is_all=True)

    def find_one(self, message: Message, last_key: str, timeout_s: float, done: OnFound) -> None:
        """Tell `done` one recipient in a list: the one whose turn it is, and at a retry the one
        behind `last_key`, that of the attempt before.
        """
        self._find(
            message, timeout_s, lambda found: done(self._pick(found, last_key)), is_all=False
        )

    def _pick(
        self, found: "list[Recipient] | Unresolved", last_key: str
    ) -> "list[Recipient] | Unresolved":
        if isinstance(found, Unresolved) or not found:
            return found
        keys = [each.key for each in found]
        if last_key in keys:
            first = keys.index(last_key) + 1
        else:
            first = self._turn
            self._turn += 1
        ordered = [found[(first + step) % len(found)] for step in range(len(found))]
        return [next((each for each in ordered if each.route is not None), ordered[0])]

    def _find(self, message: Message, timeout_s: float, done: OnFound, *, is_all: bool) -> None:
        try:
            resolved = self._resolved(message, is_all=is_all)
        except Unresolved as error:
            done(error)
            return
        recipients = (
            [_recipient(each, message, "") for each in self._endpoints]
            if resolved is None
            else [_recipient(each, message, self._authorization) for each in resolved]
        )
        if self._settings.is_dns and self._names is not None:
            self._expand(recipients, self._names, timeout_s, done)
        else:
            done(self._bounded(recipients))

    def _resolved(self, message: Message, *, is_all: bool) -> Sequence[Endpoint] | None:
        """Ask the operator's resolver; None leaves it to the endpoint. Raises Unresolved."""
        if self._resolver is None:
            return None
        addresses = self._ask(self._resolver, message, is_all=is_all)
        if addresses is not None:
            return [self._parse(each) for each in addresses[: self._addresses_max + 1]]
        if self._problem:
            raise Unresolved(self._problem)
        return None

    def _ask(
        self, resolver: EndpointResolver, message: Message, *, is_all: bool
    ) -> Sequence[str] | None:
        asked = Asked(self._subscription, self._plain_endpoint, self._metadata, message)
        try:
            if is_all:
                found = resolver.resolve_all(asked)
                addresses = None if found is None else list(found)
            else:
                address = resolver.resolve(asked)
                addresses = None if address is None else [address]
        except Unresolved as error:
            # It may quote an address, with its password.
            raise Unresolved(without_secrets(str(error))) from None
        # It is not our code, and no message may end the subscription's consumer.
        except Exception as error:
            self._say(
                "the resolver failed: %s", f"{type(error).__name__}: {without_secrets(str(error))}"
            )
            raise Unresolved(f"the resolver failed: {type(error).__name__}") from error
        if addresses is not None and not all(isinstance(each, str) for each in addresses):
            raise Unresolved("the resolver gave something else than addresses")
        return addresses

    def _parse(self, address: str) -> Endpoint:
        parsed = self._parsed.get(address)
        if parsed is None:
            try:
                parsed = parse_endpoint(
                    address, self._subscription, self._settings.hosts, self._schemes
                )
            except Refused as error:
                raise Unresolved(f"the resolver's address: {error.message}") from error
            while len(self._parsed) >= _PARSED_MAX:
                del self._parsed[next(iter(self._parsed))]
            self._parsed[address] = parsed
        return parsed

    def _expand(
        self, recipients: list[Recipient], names: Resolver, timeout_s: float, done: OnFound
    ) -> None:
        """Each address of each host for the host itself, once all are known."""
        hosts = dict.fromkeys(
            each.route.origin.host
            for each in recipients
            if each.route is not None and self._is_looked_up(each.route.origin.host)
        )
        answers: dict[str, Found] = {}
        is_told = False

        def tell() -> None:
            nonlocal is_told
            if is_told:
                return
            is_told = True
            missing = [each for each in hosts if each not in answers]
            if missing:
                done(Unresolved(f"no answer of the name servers for {', '.join(missing[:5])}"))
            else:
                done(self._bounded(_expanded(recipients, answers)))

        def on_answer(host: str, answer: Found) -> None:
            answers[host] = answer
            if len(answers) == len(hosts):
                tell()

        for host in hosts:
            names.resolve(host, partial(on_answer, host))
        if not hosts:
            tell()
        elif not is_told:
            trio.lowlevel.spawn_system_task(_after, timeout_s, tell)

    def _is_looked_up(self, host: str) -> bool:
        is_proxied = self._is_proxied is not None and self._is_proxied(host)
        return literal_address(host) is None and not is_proxied

    def _bounded(self, recipients: list[Recipient]) -> list[Recipient]:
        unique = list({each.key: each for each in recipients}.values())
        if len(unique) > self._addresses_max:
            self._say("more than %d addresses; the others get nothing", self._addresses_max)
        return unique[: self._addresses_max]

    def _say(self, text: str, value: object) -> None:
        """Log a warning, at most one a minute: it may come with each message."""
        now_s = self._now_s()
        if now_s - self._said_s >= _SAID_EACH_S:
            self._said_s = now_s
            _logger.warning("%s: " + text, self._subscription, value)


def _recipient(endpoint: Endpoint, message: Message, authorization: str) -> Recipient:
    """`authorization` is for an address that has no credentials of its own."""
    try:
        route = endpoint.resolve(message.body)
    except Unresolved as error:
        return Recipient(endpoint.template, None, "", str(error))
    return Recipient(_key(route), route, endpoint.authorization or authorization)


async def _after(delay_s: float, callback: Callable[[], None]) -> None:
    await trio.sleep(delay_s)
    callback()


def _expanded(recipients: list[Recipient], answers: Mapping[str, Found]) -> list[Recipient]:
    expanded: list[Recipient] = []
    for each in recipients:
        route = each.route
        if route is None or route.origin.host not in answers:
            expanded.append(each)
            continue
        answer = answers[route.origin.host]
        if isinstance(answer, OSError) or not answer:
            why = str(answer) if answer else "the name has no address"
            expanded.append(Recipient(each.key, None, "", f"{route.origin.host}: {why}"))
            continue
        at = [at_address(route, address) for address in one_family(answer)]
        expanded += [Recipient(_key(route), route, each.authorization) for route in at]
    return expanded


def one_family(addresses: Sequence[str]) -> tuple[str, ...]:
    """The IPv4 addresses, or else the IPv6 ones: a machine that has both is one recipient.

    Sorted, for name servers change their order.
    """
    unique = dict.fromkeys(addresses)
    return tuple(sorted(each for each in unique if ":" not in each) or sorted(unique))


def _key(route: PushRoute) -> str:
    origin = route.origin
    return (
        f"{origin} ({origin.address}){route.target}"
        if origin.address
        else f"{origin}{route.target}"
    )
