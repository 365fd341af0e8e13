"""HTTP Basic: right and wrong, remembered and bounded, in trio and on the asyncio host."""

import asyncio  # noqa: TID251 -- the mechanism runs on the host loop too
import logging
import threading

import pytest
import trio

from hermes_actors.errors import Unavailable
from hermes_actors.runtime import guest
from hermes_actors.security import passwords
from hermes_actors.security.account import BadCredentials, Credentials
from hermes_actors.security.authenticator import Authenticator
from hermes_actors.security.basic import BasicMechanism
from hermes_actors.security.files import WatchedFile
from hermes_actors.security.passwords import PasswordChecks
from hermes_actors.security.users import parse_users, user_line

PASSWORD = "s3cret: with colons, ümlauts"


def checks_of(**bounds: int) -> PasswordChecks:
    return PasswordChecks(
        b"random", **{"running_max": 2, "waiting_max": 10, "remembered_max": 10, **bounds}
    )


@pytest.fixture
def write_users(tmp_path, cheap_hash):
    def write(**passwords: str) -> WatchedFile:
        lines = [
            user_line(name, cheap_hash(password), ["PUBLISHER"], ["sales"])
            for name, password in passwords.items()
        ]
        path = tmp_path / "users.toml"
        path.write_text("\n".join(["[users]", *lines, "nopass = { roles = [] }"]))
        return WatchedFile(str(path), "security.users_file", parse_users, 1.0)

    return write


async def test_a_user_with_the_right_password_is_known(write_users, basic):
    users = write_users(ada=PASSWORD)
    await users.load()
    mechanism = BasicMechanism("hermes", users, checks_of())
    account = await mechanism.identify(basic("ada", PASSWORD))
    assert account is not None
    assert (account.name, account.roles, account.groups) == ("ada", {"PUBLISHER"}, {"sales"})
    assert mechanism.challenge == 'Basic realm="hermes", charset="UTF-8"'


async def test_who_is_wrong_is_told_the_same_whatever_is_wrong(write_users, basic):
    users = write_users(ada=PASSWORD)
    await users.load()
    mechanism = BasicMechanism("hermes", users, checks_of())
    reasons = set()
    for name, password in (("ada", "wrong"), ("bob", PASSWORD), ("nopass", ""), ("", "")):
        with pytest.raises(BadCredentials) as refused:
            await mechanism.identify(basic(name, password))
        reasons.add(str(refused.value))
    assert len(reasons) == 1


async def test_an_unknown_user_costs_a_check_like_a_known_one(write_users, basic):
    users = write_users(ada=PASSWORD)
    await users.load()
    checks = checks_of()
    mechanism = BasicMechanism("hermes", users, checks)
    for expected, (name, password) in enumerate((("ada", "x"), ("bob", "x")), start=1):
        with pytest.raises(BadCredentials):
            await mechanism.identify(basic(name, password))
        assert checks.checks == expected


@pytest.mark.parametrize("parameter", ["", "###", "bm9jb2xvbg==", "/////w=="])
async def test_credentials_that_are_not_basics_are_bad(write_users, parameter):
    users = write_users(ada=PASSWORD)
    await users.load()
    mechanism = BasicMechanism("hermes", users, checks_of())
    with pytest.raises(BadCredentials, match="base64"):
        await mechanism.identify(Credentials(f"Basic {parameter}"))


async def test_other_schemes_are_not_for_basic(write_users):
    mechanism = BasicMechanism("hermes", write_users(), checks_of())
    for authorization in ("", "Bearer abc", "Basics abc"):
        assert await mechanism.identify(Credentials(authorization)) is None


async def test_a_right_password_is_checked_once_until_it_changes(write_users, basic):
    users = write_users(ada=PASSWORD)
    await users.load()
    checks = checks_of()
    mechanism = BasicMechanism("hermes", users, checks)
    for _ in range(3):
        assert await mechanism.identify(basic("ada", PASSWORD)) is not None
    assert checks.checks == 1
    write_users(ada="another")
    await users.check()
    with pytest.raises(BadCredentials):
        await mechanism.identify(basic("ada", PASSWORD))
    write_users(bob="another")
    await users.check()
    with pytest.raises(BadCredentials):
        await mechanism.identify(basic("ada", "another"))


async def test_what_is_remembered_is_bounded_and_no_password(cheap_hash):
    checks = checks_of(remembered_max=2)
    hashes = {password: cheap_hash(password) for password in ("one", "two", "three")}
    for password, hashed in hashes.items():
        assert await checks.is_right(hashed, password)
    assert len(checks._right) == 2
    assert checks.checks == 3
    assert await checks.is_right(hashes["three"], "three")
    assert checks.checks == 3
    assert await checks.is_right(hashes["one"], "one")
    assert checks.checks == 4
    assert not any(b"three" in digest for digest in checks._right)


async def test_the_same_password_at_once_is_checked_once(cheap_hash):
    checks = checks_of(waiting_max=1)
    right, wrong = cheap_hash("x"), cheap_hash("y")
    results = []

    async def one(hashed: str) -> None:
        results.append(await checks.is_right(hashed, "x"))

    for hashed in (right, wrong):
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(one, hashed)
    assert checks.checks == 2
    assert results == [True] * 20 + [False] * 20


async def test_whoever_waits_for_a_cancelled_check_makes_it_himself(cheap_hash):
    checks = checks_of()
    hashed = cheap_hash("x")
    scope = trio.CancelScope()
    results = []

    async def first() -> None:
        with scope:
            scope.cancel()
            await checks.is_right(hashed, "x")

    async def second() -> None:
        results.append(await checks.is_right(hashed, "x"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        nursery.start_soon(second)
    assert results == [True]


async def test_too_many_checks_are_refused_as_unavailable(cheap_hash):
    checks = checks_of(waiting_max=2)
    outcomes = []

    async def one(number: int, hashed: str) -> None:
        try:
            outcomes.append(await checks.is_right(hashed, f"guess {number}"))
        except Unavailable as error:
            outcomes.append(error.status)

    hashed = cheap_hash("x")
    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(one, number, hashed)
    assert sorted(outcomes) == [False, False, 503, 503, 503, 503]


def test_who_asks_and_leaves_has_no_more_threads_at_work(monkeypatch):
    """A cancelled asyncio task does not wait for its thread."""
    may_end = threading.Event()
    at_work: list[str] = []
    most = 0

    def verify(hashed: str, password: str) -> bool:
        nonlocal most
        at_work.append(password)
        most = max(most, len(at_work))
        may_end.wait(10)
        at_work.remove(password)
        return False

    monkeypatch.setattr(passwords, "_verify", verify)
    checks = checks_of()
    loop: asyncio.AbstractEventLoop

    has_begun = asyncio.Event()

    class Turns(threading.Semaphore):
        def __enter__(self) -> bool:
            loop.call_soon_threadsafe(has_begun.set)
            return self.acquire()

    monkeypatch.setattr(threading, "Semaphore", Turns)

    async def ask_and_leave() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        for number in range(10):
            task = asyncio.create_task(checks.is_right("hash", f"guess {number}"))
            await has_begun.wait()
            has_begun.clear()
            task.cancel()
            assert task in (await asyncio.wait([task]))[0]
            assert task.cancelled()
        with pytest.raises(Unavailable):
            await checks.is_right("hash", "one more")
        may_end.set()
        while checks.waiting:  # noqa: ASYNC110 -- threads tell nobody when they end
            await asyncio.sleep(0)
        assert not await checks.is_right("hash", "one more")

    asyncio.run(ask_and_leave())
    assert most == 2


def test_it_works_on_the_asyncio_host_and_in_trio_at_once(write_users, basic):
    users = write_users(ada=PASSWORD)

    async def main() -> list[str]:
        await users.load()
        authenticator = Authenticator([BasicMechanism("hermes", users, checks_of())])

        async def name() -> str:
            account = await authenticator.identify(basic("ada", PASSWORD))
            return "" if account is None else account.name

        async def many_on_the_host() -> list[str]:
            return await asyncio.gather(*(name() for _ in range(5)))

        names = []

        async def in_trio() -> None:
            names.append(await name())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(in_trio)
            names += await guest.call(many_on_the_host)
        return names

    assert guest.run(main) == ["ada"] * 6


async def test_no_secret_is_shown_or_logged(write_users, basic, caplog):
    caplog.set_level(logging.DEBUG)
    users = write_users(ada=PASSWORD)
    await users.load()
    authenticator = Authenticator([BasicMechanism("hermes", users, checks_of())])
    credentials = basic("ada", "wrong-password")
    encoded = credentials.authorization.split()[1]
    assert encoded not in repr(credentials)
    with pytest.raises(Exception) as refused:  # noqa: PT011 -- whatever it is
        await authenticator.identify(credentials)
    seen = f"{refused.value!r} {refused.value.__cause__!r} {caplog.text} {authenticator!r}"
    assert "wrong-password" not in seen
    assert encoded not in seen
