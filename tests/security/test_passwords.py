"""HTTP Basic: right and wrong, remembered and bounded, in trio and on the asyncio host."""

import asyncio  # noqa: TID251 -- the mechanism runs on the host loop too
import logging

import pytest
import trio

from hermes_actors.errors import Unavailable
from hermes_actors.runtime import guest
from hermes_actors.runtime.workers import InlinePool, WorkerPool
from hermes_actors.security import passwords
from hermes_actors.security.account import BadCredentials, Credentials
from hermes_actors.security.authenticator import Authenticator
from hermes_actors.security.basic import BasicMechanism
from hermes_actors.security.passwords import PasswordChecks
from hermes_actors.security.users import NO_USERS, parse_users, user_line
from hermes_actors.security.watched import watched_files

PASSWORD = "s3cret: with colons, ümlauts"


@pytest.fixture
def write_users(tmp_path, cheap_hash, clock):
    def write(**passwords: str):
        lines = [
            user_line(name, cheap_hash(password), ["PUBLISHER"], ["sales"])
            for name, password in passwords.items()
        ]
        path = tmp_path / "users.toml"
        path.write_text("\n".join(["[users]", *lines, "nopass = { roles = [] }"]))
        return watched_files("security.users_file", [str(path)], parse_users, NO_USERS, clock, 1.0)

    return write


@pytest.fixture
async def users(write_users):
    users = write_users(ada=PASSWORD)
    await users.load()
    return users


@pytest.fixture
def checks() -> PasswordChecks:
    return PasswordChecks(b"random", InlinePool())


@pytest.fixture
def mechanism(users, checks) -> BasicMechanism:
    return BasicMechanism("hermes", users, checks)


async def test_a_user_with_the_right_password_is_known(mechanism, basic):
    account = await mechanism.identify(basic("ada", PASSWORD))
    assert account is not None
    assert (account.name, account.roles, account.groups) == ("ada", {"PUBLISHER"}, {"sales"})
    for authorization in ("", "Bearer abc", "Basics abc"):
        assert await mechanism.identify(Credentials(authorization)) is None


async def test_who_is_wrong_is_told_the_same_and_costs_the_same(mechanism, checks, basic):
    reasons = set()
    wrong = (("ada", "wrong"), ("bob", PASSWORD), ("nopass", ""), ("", ""))
    for count, (name, password) in enumerate(wrong, start=1):
        with pytest.raises(BadCredentials) as refused:
            await mechanism.identify(basic(name, password))
        reasons.add(str(refused.value))
        assert checks.checks == count
    assert len(reasons) == 1


@pytest.mark.parametrize("parameter", ["", "###", "bm9jb2xvbg==", "/////w=="])
async def test_credentials_that_are_not_basics_are_bad(mechanism, parameter):
    with pytest.raises(BadCredentials, match="base64"):
        await mechanism.identify(Credentials(f"Basic {parameter}"))


async def test_a_right_password_is_checked_once_until_it_changes(
    mechanism, users, checks, write_users, basic
):
    for _ in range(3):
        assert await mechanism.identify(basic("ada", PASSWORD)) is not None
    assert checks.checks == 1
    write_users(ada="another")
    await users.check()
    with pytest.raises(BadCredentials):
        await mechanism.identify(basic("ada", PASSWORD))


async def test_what_is_remembered_is_bounded_and_no_password(checks, cheap_hash, monkeypatch):
    monkeypatch.setattr(passwords, "REMEMBERED_MAX", 2)
    hashes = {password: cheap_hash(password) for password in ("one", "two", "three")}
    for password, hashed in hashes.items():
        assert await checks.is_right(hashed, password)
    assert await checks.is_right(hashes["three"], "three")
    assert checks.checks == 3
    assert await checks.is_right(hashes["one"], "one")
    assert checks.checks == 4
    assert not any(b"three" in digest for digest in checks._right)


class SlowPool(WorkerPool):
    """A pool that queues its jobs until `work` runs them."""

    def work(self) -> None:
        while (job := self._take()) is not None:
            job.done(job.work(*job.args))


async def test_the_same_password_at_once_is_checked_once(cheap_hash):
    pool = SlowPool()
    checks = PasswordChecks(b"random", pool)
    right, wrong = cheap_hash("x"), cheap_hash("y")
    results = []

    async def one(hashed: str) -> None:
        results.append(await checks.is_right(hashed, "x"))

    for hashed in (right, wrong):
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(one, hashed)
            await trio.testing.wait_all_tasks_blocked()
            pool.work()
    assert checks.checks == 2
    assert results == [True] * 20 + [False] * 20


async def test_too_many_checks_are_refused_as_unavailable(cheap_hash):
    checks = PasswordChecks(b"random", SlowPool())
    hashed = cheap_hash("x")
    async with trio.open_nursery() as nursery:
        for number in range(64):
            nursery.start_soon(checks.is_right, hashed, f"guess {number}")
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(Unavailable):
            await checks.is_right(hashed, "one more")
        nursery.cancel_scope.cancel()


def test_it_works_on_the_asyncio_host_and_in_trio_at_once(write_users, basic):
    users = write_users(ada=PASSWORD)

    async def main() -> list[str]:
        await users.load()
        pool, stop = WorkerPool(), trio.Event()
        checks = PasswordChecks(b"random", pool)
        authenticator = Authenticator([BasicMechanism("hermes", users, checks)])

        async def name() -> str:
            account = await authenticator.identify(basic("ada", PASSWORD))
            return "" if account is None else account.name

        async def many_on_the_host() -> list[str]:
            return await asyncio.gather(*(name() for _ in range(5)))

        names = []

        async def in_trio() -> None:
            names.append(await name())

        async with trio.open_nursery() as workers:
            workers.start_soon(pool.run, stop)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(in_trio)
                names += await guest.call(many_on_the_host)
            stop.set()
        assert checks.checks == 1
        return names

    assert guest.run(main) == ["ada"] * 6


async def test_no_secret_is_shown_or_logged(mechanism, basic, caplog):
    caplog.set_level(logging.DEBUG)
    authenticator = Authenticator([mechanism])
    credentials = basic("ada", "wrong-password")
    encoded = credentials.authorization.split()[1]
    assert encoded not in repr(credentials)
    with pytest.raises(Exception) as refused:  # noqa: PT011 -- whatever it is
        await authenticator.identify(credentials)
    seen = f"{refused.value!r} {refused.value.__cause__!r} {caplog.text} {authenticator!r}"
    assert "wrong-password" not in seen
    assert encoded not in seen
