"""The users file: what is taken, what is refused, and what is never shown."""

import argon2
import pytest

from hermes_actors.errors import StartupError
from hermes_actors.security.account import Account
from hermes_actors.security.passwords import hash_password, is_hash
from hermes_actors.security.users import NO_USERS, WrongFile, parse_users, user_line
from hermes_actors.security.watched import watched_files


def content(*lines: str) -> bytes:
    return "\n".join(("[users]", *lines)).encode()


def test_a_line_that_was_made_is_read_back(cheap_hash):
    hashed = cheap_hash("s3cret")
    for name in ("shop-app", "ada@example.com", 'with "quotes"', "ümlaut"):
        users = parse_users(content(user_line(name, hashed, ["PUBLISHER"], ["sales", "ops"])))
        expected = Account(name, frozenset({"PUBLISHER"}), frozenset({"sales", "ops"}))
        assert users.account(name) == expected
        assert users.password_hash(name) == hashed
        assert users.account("other") is None
        assert users.password_hash("other") == ""


def test_a_hash_is_argon2id_and_never_the_same_twice():
    first, second = hash_password("s3cret"), hash_password("s3cret")
    assert first.startswith("$argon2id$")
    assert first != second
    assert is_hash(first)
    assert not is_hash("s3cret")
    assert argon2.PasswordHasher().verify(second, "s3cret")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('ada = { password = "my-own-password" }', "users.ada.password: is not an argon2 hash"),
        ('"a:b" = { roles = [] }', "contain a colon"),
        ("ada = { pasword = 1 }", "users[ada]: Object contains unknown field `pasword`"),
        ("ada = { roles = [1] }", "users[ada].roles[0]: Expected `str`"),
        ("ada = {}\nsam = 5", "users[sam]: Expected `object`"),
        ("ada = {", "not valid TOML"),
        ("ada = " + "[" * 5_000, "nests too deep"),
    ],
)
def test_a_wrong_file_is_refused_without_showing_a_password(line, reason):
    with pytest.raises(WrongFile) as refused:
        parse_users(content(line))
    assert reason in str(refused.value)
    assert "my-own-password" not in str(refused.value)


def test_users_show_no_hash_in_their_text(cheap_hash):
    users = parse_users(content(user_line("ada", cheap_hash("x"), [], [])))
    assert "argon2" not in repr(users)
    assert "argon2" not in repr(vars(users)["_users"])


def test_nobodys_hash_costs_as_much_as_the_costliest(cheap_hash):
    costly = argon2.PasswordHasher(time_cost=2, memory_cost=64, parallelism=1).hash("x")
    users = parse_users(
        content(user_line("ada", cheap_hash("x"), [], []), user_line("bob", costly, [], []))
    )
    parameters = argon2.extract_parameters(users.nobodys_hash)
    assert (parameters.time_cost, parameters.memory_cost) == (2, 64)
    assert parameters.parallelism == 1
    with pytest.raises(argon2.exceptions.VerifyMismatchError):
        argon2.PasswordHasher().verify(users.nobodys_hash, "x")


async def test_a_file_is_read_again_and_a_wrong_one_changes_nothing(
    tmp_path, caplog, cheap_hash, clock
):
    path = tmp_path / "users.toml"
    path.write_bytes(content(user_line("ada", cheap_hash("x"), [], [])))
    file = watched_files("security.users_file", [str(path)], parse_users, NO_USERS, clock, 1.0)
    await file.load()
    assert file.value.account("ada") is not None
    path.write_bytes(content(user_line("bob", cheap_hash("x"), [], [])))
    await file.check()
    assert file.value.account("ada") is None
    assert file.value.account("bob") is not None
    path.write_text("no TOML at [all")
    await file.check()
    await file.check()
    assert file.value.account("bob") is not None
    path.unlink()
    await file.check()
    assert file.value.account("bob") is not None
    complaints = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert len(complaints) == 2
    assert all("stays in force" in each and str(path) in each for each in complaints)
    path.write_bytes(content())
    await file.check()
    assert file.value.account("bob") is None


async def test_a_file_that_is_not_there_at_the_start_is_one_clear_line(tmp_path, clock):
    file = watched_files(
        "security.users_file", [str(tmp_path / "none.toml")], parse_users, NO_USERS, clock, 1.0
    )
    with pytest.raises(StartupError, match=r"security\.users_file: .*none\.toml: No such file"):
        await file.load()
