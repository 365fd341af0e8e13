"""The users file, in TOML. `hermes user hash` prints the line for a user.

    [users]
    shop-app = { password = "$argon2id$…", roles = ["PUBLISHER"], groups = ["sales"] }

Users of client certificates need no password.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
from msgspec import Struct, field

from hermes_actors.model.places import explained
from hermes_actors.security.account import Account
from hermes_actors.security.passwords import costliest, is_hash


class WrongFile(Exception):
    """The file is invalid. The message says what would be right."""


class _User(Struct, frozen=True, forbid_unknown_fields=True):
    password: str = ""
    roles: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"_User(roles={self.roles}, groups={self.groups})"


class _UsersFile(Struct, frozen=True, forbid_unknown_fields=True):
    users: dict[str, _User]


_decode = partial(msgspec.convert, type=_UsersFile)


class Users:
    """The users by name. `nobodys_hash` belongs to no user, and is as costly to check as theirs."""

    def __init__(self, users: Mapping[str, _User]) -> None:
        self._users = users
        self.nobodys_hash = costliest([each.password for each in users.values() if each.password])

    def __repr__(self) -> str:
        return f"Users({len(self._users)})"

    def account(self, name: str) -> Account | None:
        """The account of the user; None if it does not exist."""
        user = self._users.get(name)
        if user is None:
            return None
        return Account(name, frozenset(user.roles), frozenset(user.groups))

    def accounts(self) -> list[Account]:
        """All accounts, sorted by name."""
        return [
            Account(name, frozenset(user.roles), frozenset(user.groups))
            for name, user in sorted(self._users.items())
        ]

    def password_hash(self, name: str) -> str:
        """The hash of the user's password. Empty string without a password or without the user."""
        user = self._users.get(name)
        return "" if user is None else user.password


NO_USERS = Users({})


def parse_users(content: bytes) -> Users:
    """Parse a users file. Raises WrongFile, whose text quotes no password."""
    tree: object = None
    try:
        tree = msgspec.toml.decode(content)
        users = _decode(tree).users
    except msgspec.ValidationError as error:
        place, problem = explained(tree, _decode, error)
        where = f"{place.removeprefix('.')}: " if place else ""
        raise WrongFile(f"{where}{problem}; see docs/security.md for the form") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WrongFile(f"not valid TOML: {error}") from error
    except RecursionError as error:
        raise WrongFile("not valid TOML: it nests too deep") from error
    for name, user in users.items():
        if not name or ":" in name:
            raise WrongFile(f"users.'{name}': a name cannot be empty or contain a colon")
        if user.password and not is_hash(user.password):
            # Not quoted: it may be the password itself.
            raise WrongFile(
                f"users.{name}.password: is not an argon2 hash; make one with 'hermes user hash'"
            )
    return Users(users)


def user_line(name: str, hashed: str, roles: Sequence[str], groups: Sequence[str]) -> str:
    """The line of one user, for the section `[users]`."""
    is_bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    key = name if is_bare else msgspec.json.encode(name).decode()
    fields = [
        f"password = {msgspec.json.encode(hashed).decode()}",
        f"roles = {msgspec.json.encode(list(roles)).decode()}",
        f"groups = {msgspec.json.encode(list(groups)).decode()}",
    ]
    return f"{key} = {{ {', '.join(fields)} }}"
