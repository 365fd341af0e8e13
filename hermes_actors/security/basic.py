"""HTTP Basic (RFC 7617) with the users of a file."""

import base64
import binascii

from hermes_actors.security.account import Account, BadCredentials, Credentials
from hermes_actors.security.passwords import PasswordChecks
from hermes_actors.security.users import Users
from hermes_actors.security.watched import Watched

_WRONG = "The user's name or password is wrong"


class BasicMechanism:
    """Checks name and password by the users file. The time it takes does not reveal if a user of
    that name exists.
    """

    def __init__(self, realm: str, users: Watched[Users], checks: PasswordChecks) -> None:
        self.challenge = f'Basic realm="{realm}", charset="UTF-8"'
        self._users = users
        self._checks = checks

    async def identify(self, credentials: Credentials) -> Account | None:
        """The user; None without Basic credentials. Raises BadCredentials and Unavailable."""
        if credentials.scheme != "basic":
            return None
        name, password = _parsed(credentials.parameter)
        users = self._users.value
        hashed = users.password_hash(name)
        account = users.account(name)
        is_right = await self._checks.is_right(hashed or users.nobodys_hash, password)
        if not is_right or not hashed or account is None:
            raise BadCredentials(_WRONG)
        return account

    async def run(self) -> None:
        """Watch the users file. A trio coroutine."""
        await self._users.run()


def _parsed(parameter: str) -> tuple[str, str]:
    try:
        text = base64.b64decode(parameter, validate=True).decode()
    except (binascii.Error, ValueError):
        # Without the cause, whose text may quote the credentials.
        raise BadCredentials("Basic credentials are base64 of name:password in UTF-8") from None
    name, colon, password = text.partition(":")
    if not colon:
        raise BadCredentials("Basic credentials are base64 of name:password in UTF-8")
    return name, password
