"""The recipients of a message: one of several addresses (ANYCAST), or all of them (BROADCAST).

Addresses come from the operator's resolver, or else from the endpoint: those it lists, and, with
`{"resolve": "dns"}` in endpointAddressResolverMetadata, each IP address of their hosts.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial

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

_PARSED_MAX = 1_000
RESOLVE, DNS, HOSTS = "resolve", "dns", "hosts"
"""The keys that the built-in resolver reads in endpointAddressResolverMetadata."""


class Recipient(Struct, frozen=True):
    """One recipient of a message, identified by `key`. Without a `route`, `problem` says why it
    cannot be reached.
    """

    key: str
    route: PushRoute | None
    authorization: str = ""
    problem: str = ""

    def __repr__(self) -> str:
        return redacted(self, authorization=HIDDEN)

    @property
    def name(self) -> str:
        """The key without its query, which may contain a token. For people."""
        return self.key.partition("?")[0]


class Settings(Struct, frozen=True):
    """The settings of the built-in resolver, from a subscription's metadata."""

    is_dns: bool = False
    hosts: tuple[str, ...] = ()

    @classmethod
    def of(cls, live: LiveSubscription) -> "Settings":
        """Read the settings; unknown keys are left to plug-in resolvers. Raises Refused."""
        metadata = live.subscription.endpoint_address_resolver_metadata
        path = "endpointAddressResolverMetadata"
        if metadata.get(RESOLVE) not in (None, DNS):
            raise Refused(f'{path}.{RESOLVE}: must be "{DNS}", or be left out')
        hosts = metadata.get(HOSTS) or []
        if not isinstance(hosts, list) or not all(isinstance(each, str) for each in hosts):
            raise Refused(f'{path}.{HOSTS} is a list of hosts such as "*.orders.example.com"')
        return cls(metadata.get(RESOLVE) == DNS, tuple(each.lower() for each in hosts))


OnFound = Callable[["list[Recipient] | Unresolved"], None]


class Recipients:
    """The recipients of one version of a subscription. Raises Refused for an invalid endpoint.

    Proxied hosts are not looked up here, because the proxy does that; each stays one address. If an
    endpoint begins with a scheme of `other_schemes`, which have plug-in senders, all of its
    addresses must have that scheme. `single` is the endpoint if it is one address that needs no
    resolving.
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
    ) -> None:
        self._subscription = str(live.name)
        self._resolver = resolver
        self._names = names
        self._is_proxied = is_proxied
        self._addresses_max = addresses_max
        self._addresses_said = (
            f"at most {addresses_max} are pushed to (consumers.recipients.addresses_max)"
        )
        self._turn = 0
        subscription = live.subscription
        scheme = subscription.endpoint.partition("://")[0].lower()
        self._schemes = (scheme,) if scheme in other_schemes else SCHEMES
        self._metadata = subscription.endpoint_address_resolver_metadata
        self._parse = lru_cache(_PARSED_MAX)(self._parse_anew)
        self._problem = ""
        self._endpoints: tuple[Endpoint, ...] = ()
        self._settings = Settings()
        try:
            self._settings = Settings.of(live)
            self._endpoints = parse_endpoints(
                subscription.endpoint, self._subscription, self._settings.hosts, self._schemes
            )
            if len(self._endpoints) > addresses_max:
                raise Refused(f"endpoint: {len(self._endpoints)} addresses; {self._addresses_said}")
        except Refused as error:
            # The operator's resolver may understand it.
            if resolver is None:
                raise
            self._problem = error.message
        parts = [without_credentials(each) for each in split_addresses(subscription.endpoint)]
        self._plain_endpoint = ";".join(address for address, _ in parts)
        # A resolver's result for several addresses is none of them, so it gets no credentials.
        self._authorization = parts[0][1] if len(parts) == 1 else ""
        is_single = resolver is None and len(self._endpoints) == 1 and not self._settings.is_dns
        self.single = self._endpoints[0] if is_single else None

    @property
    def is_by_message(self) -> bool:
        """True if an address is filled from the message."""
        return any(each.is_template for each in self._endpoints)

    def find_all(self, message: Message, timeout_s: float, done: OnFound) -> None:
        """Call `done` with all recipients, at once or after their names have been looked up; or
        with an Unresolved if they are unknown when the time is over.
        """
        self._find(message, timeout_s, done, is_all=True)

    def find_one(self, message: Message, last_key: str, timeout_s: float, done: OnFound) -> None:
        """Call `done` with a list of one recipient: the next in turn, or, at a retry, the one after
        `last_key`, the recipient of the previous attempt.
        """

        def pick(found: "list[Recipient] | Unresolved") -> None:
            if isinstance(found, list) and found:
                keys = [each.key for each in found]
                if last_key in keys:
                    first = keys.index(last_key) + 1
                else:
                    first = self._turn
                    self._turn += 1
                ordered = [found[(first + step) % len(found)] for step in range(len(found))]
                found = [next((each for each in ordered if each.route is not None), ordered[0])]
            done(found)

        self._find(message, timeout_s, pick, is_all=False)

    def _find(self, message: Message, timeout_s: float, done: OnFound, *, is_all: bool) -> None:
        try:
            resolved = None if self._resolver is None else self._resolved(message, is_all=is_all)
        except Unresolved as error:
            done(error)
            return
        # A resolver's address without credentials gets those of the endpoint.
        authorization = "" if resolved is None else self._authorization
        endpoints = self._endpoints if resolved is None else resolved
        recipients = [_recipient(each, message, authorization) for each in endpoints]

        def tell(answers: Mapping[str, Found] | Unresolved) -> None:
            if isinstance(answers, Unresolved):
                done(answers)
                return
            unique = list({each.key: each for each in _expanded(recipients, answers)}.values())
            if is_all and len(unique) > self._addresses_max:
                done(Unresolved(f"too many addresses; {self._addresses_said}"))
            else:
                done(unique[: self._addresses_max])

        hosts = {each.route.origin.host for each in recipients if each.route is not None}
        hosts = {each for each in hosts if self._is_looked_up(each)}
        if self._names is None or not hosts:
            tell({})
        else:
            _look_up(hosts, self._names, timeout_s, tell)

    def _resolved(self, message: Message, *, is_all: bool) -> Sequence[Endpoint] | None:
        """Ask the operator's resolver. None means that the endpoint's own addresses apply. Raises
        Unresolved.
        """
        assert self._resolver is not None, "there is one to ask"
        asked = Asked(self._subscription, self._plain_endpoint, self._metadata, message)
        try:
            if is_all:
                found = self._resolver.resolve_all(asked)
            else:
                address = self._resolver.resolve(asked)
                found = None if address is None else [address]
            if found is not None:
                return [self._parse(each) for each in list(found)[: self._addresses_max + 1]]
        except (Unresolved, Refused) as error:
            # The text may quote an address with its password.
            raise Unresolved(without_secrets(str(error))) from None
        # Foreign code; an exception must not end the subscription's consumer.
        except Exception as error:
            said = without_secrets(f"{type(error).__name__}: {error}")
            raise Unresolved(f"the resolver failed: {said}") from error
        if self._problem:
            raise Unresolved(self._problem)
        return None

    def _parse_anew(self, address: str) -> Endpoint:
        return parse_endpoint(address, self._subscription, self._settings.hosts, self._schemes)

    def _is_looked_up(self, host: str) -> bool:
        is_proxied = self._is_proxied is not None and self._is_proxied(host)
        return self._settings.is_dns and literal_address(host) is None and not is_proxied


def _look_up(
    hosts: Collection[str],
    names: Resolver,
    timeout_s: float,
    done: Callable[[Mapping[str, Found] | Unresolved], None],
) -> None:
    """Call `done` once, with the answers for all hosts, or with an Unresolved that names the hosts
    without an answer in time.
    """
    answers: dict[str, Found] = {}
    is_over = False

    def end() -> None:
        nonlocal is_over
        if not is_over:
            is_over = True
            missing = sorted(set(hosts) - answers.keys())
            said = f"no answer of the name servers for {', '.join(missing[:5])}"
            done(Unresolved(said) if missing else answers)

    async def end_in_time() -> None:
        await trio.sleep(timeout_s)
        end()

    def on_answer(host: str, answer: Found) -> None:
        answers[host] = answer
        if len(answers) == len(hosts):
            end()

    for host in hosts:
        names.resolve(host, partial(on_answer, host))
    if not is_over:
        trio.lowlevel.spawn_system_task(end_in_time)


def _recipient(endpoint: Endpoint, message: Message, authorization: str) -> Recipient:
    """A recipient; `authorization` is for an address without credentials."""
    try:
        route = endpoint.resolve(message.body)
    except Unresolved as error:
        return Recipient(endpoint.template, None, "", str(error))
    return Recipient(_key(route), route, endpoint.authorization or authorization)


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
    """The IPv4 addresses, or else the IPv6 ones, because a machine that has both is one recipient.

    Sorted, because name servers change their order.
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
