"""Bearer tokens (RFC 6750): JSON Web Tokens signed with a key of the configured set."""

import hashlib
from collections import OrderedDict

from hermes_actors.errors import Unavailable
from hermes_actors.runtime.clock import Clock
from hermes_actors.security.account import Account, BadCredentials, Credentials
from hermes_actors.security.keyset import KeySet
from hermes_actors.security.tokens import (
    Claims,
    TokenRules,
    header_of,
    require_in_force,
    verify,
)
from hermes_actors.security.watched import Watched

REMEMBERED_MAX = 10_000
_DIGEST_BYTES = 32


class BearerMechanism:
    """Checks tokens with the given keys and rules.

    Verified tokens are remembered until they expire or the keys change, as digests keyed with
    `secret`.
    """

    def __init__(
        self,
        realm: str,
        keys: Watched[KeySet],
        rules: TokenRules,
        clock: Clock,
        secret: bytes,
    ) -> None:
        self.challenge = f'Bearer realm="{realm}"'
        self._keys = keys
        self._rules = rules
        self._now_ms = clock.now_ms
        self._secret = hashlib.blake2b(secret, digest_size=_DIGEST_BYTES).digest()
        self._remembered: OrderedDict[bytes, Claims] = OrderedDict()
        self._generation = 0

    async def identify(self, credentials: Credentials) -> Account | None:
        """The token's account; None without one. Raises BadCredentials and Unavailable."""
        if credentials.scheme != "bearer":
            return None
        token = credentials.parameter
        digest = hashlib.blake2b(
            token.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES, key=self._secret
        ).digest()
        if self._generation != self._keys.changes:
            # A key may have been removed because it was stolen.
            self._generation = self._keys.changes
            self._remembered.clear()
        claims = self._remembered.get(digest)
        if claims is None:
            claims = await self._verified(token)
            require_in_force(claims, self._now_ms() / 1_000)
            self._remembered[digest] = claims
            if len(self._remembered) > REMEMBERED_MAX:
                self._remembered.popitem(last=False)
        require_in_force(claims, self._now_ms() / 1_000)
        return claims.account

    async def run(self) -> None:
        """Watch the keys. A trio coroutine."""
        await self._keys.run()

    async def _verified(self, token: str) -> Claims:
        header = header_of(token, self._rules)
        keys = self._keys.value.candidates(header.key_id, header.algorithm)
        if not keys:
            await self._keys.read_early()
            keys = self._keys.value.candidates(header.key_id, header.algorithm)
        if not keys and not self._keys.is_known:
            raise Unavailable("Tokens cannot be verified now: no key is known yet; try again")
        if not keys:
            raise BadCredentials("The token is signed by an unknown key")
        return verify(token, header, keys, self._rules)
