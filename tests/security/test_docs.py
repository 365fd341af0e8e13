"""The examples of docs/security.md are read from the page and hold."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import msgspec
import pytest

from hermes_actors import config as configuration
from hermes_actors.config import Config
from hermes_actors.management.access.accounts import AccountCaller
from hermes_actors.model.topic import Owner, PublishingAuth
from hermes_actors.publisher.authentication import demands_account, may_publish
from hermes_actors.runtime.clock import IdSource, SystemClock
from hermes_actors.runtime.workers import InlinePool
from hermes_actors.security.account import Account, Credentials, Unauthenticated
from hermes_actors.security.opening import _rules, open_authenticator
from hermes_actors.security.tokens import claims_of
from hermes_actors.security.users import parse_users

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()


def blocks(language: str, first: str = "") -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return [each for each in found if each.startswith(first)]


NODES = blocks("toml", "# node.toml")


def loaded(text: str, tmp_path: Path) -> Config:
    file = tmp_path / "node.toml"
    file.write_text(text)
    return configuration.load(file, {})


@pytest.mark.parametrize("number", range(4))
def test_each_configuration_is_taken_and_asks(number, tmp_path):
    assert len(NODES) == 4
    config = loaded(NODES[number], tmp_path)
    assert config.frontend.authentication.enabled
    assert config.security.has_mechanism_in_headers or config.security.certificates.enabled


@pytest.mark.slow
async def test_the_users_have_the_passwords_that_the_page_says(tmp_path, monkeypatch, basic):
    (users,) = blocks("toml", "# users.toml")
    assert parse_users(users.encode()).account("ada") is not None
    (tmp_path / "users.toml").write_text(users)
    monkeypatch.chdir(tmp_path)
    config = loaded(NODES[0], tmp_path)
    authenticator = await open_authenticator(
        config.security, SystemClock(), IdSource(), InlinePool()
    )
    for name, password, roles, groups in (
        ("shop-app", "s3cret", {"PUBLISHER"}, set()),
        ("ada", "b0ss", {"ADMIN"}, set()),
        ("sam", "p4ss", set(), {"sales"}),
    ):
        assert f"`{password}`" in PAGE
        account = await authenticator.identify(basic(name, password))
        assert account == Account(name, frozenset(roles), frozenset(groups))
    with pytest.raises(Unauthenticated):
        await authenticator.identify(basic("ada", "wrong"))


def test_the_users_have_the_rights_that_the_page_says(tmp_path):
    (text,) = blocks("toml", "# users.toml")
    (owner,) = re.findall(r"topic create shop\.orders --owner (\w+):(\w+) --user sam", PAGE)
    management = loaded(NODES[0], tmp_path).management.authentication
    users = parse_users(text.encode())
    callers = {
        name: AccountCaller(account, management)
        for name in ("ada", "sam", "shop-app")
        if (account := users.account(name)) is not None
    }
    assert {name for name, each in callers.items() if each.is_admin} == {"ada"}
    assert {name for name, each in callers.items() if each.owns(Owner(*owner))} == {"sam"}


def test_the_token_is_the_account_that_the_page_says(tmp_path):
    (claims,) = blocks("json")
    rules = _rules(loaded(NODES[1], tmp_path).security.jwt)
    account = claims_of(json.loads(claims), rules).account
    assert account == Account("shop-app", frozenset({"PUBLISHER"}), frozenset())


async def test_the_plugin_works_as_it_stands(tmp_path, monkeypatch):
    (source,) = blocks("python")
    (tmp_path / "acme_hermes.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert importlib.util.find_spec("acme_hermes") is not None
    config = loaded(NODES[3], tmp_path)
    authenticator = await open_authenticator(
        config.security, SystemClock(), IdSource(), InlinePool()
    )

    async def identify(name: str) -> Account | None:
        header = {"x-acme-client": name}.get
        return await authenticator.identify(Credentials(header=lambda name: header(name, "")))

    account = await identify("acme-shop")
    assert account is not None
    assert account.roles == {"PUBLISHER"}
    assert await identify("") is None
    with pytest.raises(Unauthenticated):
        await identify("eve")
    sys.modules.pop("acme_hermes")


def test_the_topics_auth_is_what_the_page_says():
    (text,) = re.findall(r'"auth": (\{.*\})', PAGE)
    auth = msgspec.json.decode(text, type=PublishingAuth)
    assert demands_account(auth)
    assert may_publish(auth, Account("shop-app", frozenset({"PUBLISHER"})))
    assert not may_publish(auth, Account("shop-app"))
