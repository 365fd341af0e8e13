"""Signing in and out, and how long a session lasts."""

import re

import pytest
import trio

from hermes_actors.console.sessions import (
    AGE_MAX_S,
    IDLE_MAX_S,
    OF_ONE_NAME_MAX,
    SESSIONS_MAX,
    Sessions,
)
from hermes_actors.runtime.clock import IdSource
from tests.console.desk import HERE, PASSWORD, TOKEN, heading
from tests.hand_clock import HandClock


def cookie_of(answer):
    return answer.headers.get("set-cookie", "")


async def test_a_person_signs_in_and_comes_back_to_the_page_and_signs_out(desk):
    answer = await desk.get("/console/topics?q=a&sort=lag")
    assert answer.status_code == 303
    assert (
        answer.headers["location"] == "/console/sign-in?next=/console/topics%3Fq%3Da%26sort%3Dlag"
    )
    assert "www-authenticate" not in answer.headers
    page = await desk.get(answer.headers["location"])
    assert 'name="next" value="/console/topics?q=a&amp;sort=lag"' in page.text
    answer = await desk.sign_in("bob", next="/console/topics?q=a&sort=lag")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/topics?q=a&sort=lag")
    page = await desk.get(answer.headers["location"])
    assert page.status_code == 200
    assert "Signed in as bob" in page.text
    answer = await desk.send("/console/sign-out", {})
    assert answer.headers["location"] == "/console/sign-in"
    assert (await desk.get("/console/topics")).status_code == 303


async def test_a_token_signs_in_too(desk):
    answer = await desk.send("/console/sign-in", {"token": f" {TOKEN}\n"})
    assert answer.status_code == 303
    assert "Signed in as grace" in (await desk.get("/console/overview")).text


async def test_a_wrong_password_is_refused_and_not_repeated(desk):
    answer = await desk.send("/console/sign-in", {"name": "bob", "password": "wrong-one"})
    assert answer.status_code == 401
    assert "The user&#39;s name or password is wrong" in answer.text
    assert 'value="bob"' in answer.text
    assert "wrong-one" not in answer.text
    assert cookie_of(answer) == ""


async def test_a_password_keeps_its_spaces(desk):
    desk.names.password = f" {PASSWORD} "
    assert (await desk.sign_in(password=f" {PASSWORD} ")).status_code == 303


async def test_no_script_and_no_other_site_gets_the_cookie(desk):
    cookie = cookie_of(await desk.sign_in())
    assert {"HttpOnly", "Path=/console", "SameSite=strict"} <= set(re.split("; ", cookie))
    assert "Secure" not in cookie
    over_tls = {"origin": "https://localhost", "host": "localhost"}
    answer = await desk.send("/console/sign-in", {"name": "a", "password": PASSWORD}, **over_tls)
    assert "Secure" in cookie_of(answer)


async def test_the_api_does_not_take_the_cookie(desk):
    await desk.sign_in()
    (name,) = desk.browser.cookies
    value = desk.browser.cookies[name]
    for path in ("/groups", "/topics", "/status/nodes"):
        answer = await desk.get(path, headers={"cookie": f"{name}={value}"})
        assert answer.status_code == 401, path
    answer = await desk.browser.post(
        "/groups", json={"groupName": "x"}, headers=HERE | {"cookie": f"{name}={value}"}
    )
    assert answer.status_code == 401


async def test_a_session_ends_when_it_is_not_used_and_pages_do_not_use_it_by_themselves(
    desk, autojump_clock
):
    await desk.sign_in()
    # The clock must not jump while a thread compiles the page.
    await desk.get("/console/overview")
    await trio.sleep(IDLE_MAX_S - 1)
    assert (await desk.get("/console/overview/live")).status_code == 200
    assert (await desk.get("/console/overview")).status_code == 200
    await trio.sleep(IDLE_MAX_S - 1)
    assert (await desk.get("/console/overview/live")).status_code == 200
    await trio.sleep(1)
    headers = {"hx-request": "true", "hx-current-url": "http://localhost/console/overview"}
    answer = await desk.get("/console/overview/live", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["hx-redirect"] == "/console/sign-in?next=/console/overview"


async def test_a_changed_password_ends_the_session_at_the_next_page(desk):
    await desk.sign_in()
    desk.names.password = "another"
    assert (await desk.get("/console/overview")).status_code == 303
    # The page to sign in is there, and does not lead to itself.
    assert heading(await desk.get("/console/sign-in")) == "Sign in to dc1"


def test_a_session_ends_at_its_greatest_age_however_much_it_is_used():
    clock = HandClock()
    sessions = Sessions("dc1/a", clock, IdSource())
    id_ = sessions.begin("ada", "Basic x")
    while clock.monotonic_s() < AGE_MAX_S - 100:
        assert sessions.find(id_) is not None
        clock.pass_time(100)
    clock.pass_time(100)
    assert sessions.find(id_) is None


def test_a_full_table_forgets_the_session_that_was_unused_longest():
    clock = HandClock()
    sessions = Sessions("dc1/a", clock, IdSource())
    ids = []
    for number in range(SESSIONS_MAX):
        ids.append(sessions.begin(f"p{number}", "Basic x"))
        clock.pass_time(0.1)
    assert len(set(ids)) == SESSIONS_MAX
    assert min(map(len, ids)) == 64
    sessions.find(ids[0])
    sessions.begin("late", "Basic x")
    assert sessions.find(ids[0]) is not None
    assert sessions.find(ids[1]) is None


def test_one_account_ends_no_session_of_another():
    sessions = Sessions("dc1/a", clock := HandClock(), IdSource())
    other = sessions.begin("bob", "Basic x")
    ids = []
    for _ in range(SESSIONS_MAX + 1):
        clock.pass_time(0.1)
        ids.append(sessions.begin("ada", "Basic x"))
    assert sessions.find(other) is not None
    is_open = [sessions.find(each) is not None for each in ids]
    assert is_open == [False] * (len(ids) - OF_ONE_NAME_MAX) + [True] * OF_ONE_NAME_MAX


async def test_signing_in_again_ends_the_session_of_this_browser(desk):
    await desk.sign_in()
    old = dict(desk.browser.cookies)
    await desk.sign_in("bob")
    desk.browser.cookies.clear()
    cookies = "; ".join(f"{name}={value}" for name, value in old.items())
    answer = await desk.get("/console/overview", headers={"cookie": cookies})
    assert answer.status_code == 303


def test_no_repr_of_a_session_shows_what_it_stands_for():
    sessions = Sessions("dc1/a", HandClock(), IdSource())
    session = sessions.find(sessions.begin("ada", "Basic c2VjcmV0"))
    assert "c2VjcmV0" not in repr(session)


@pytest.mark.parametrize("reads", [""])
async def test_without_authentication_there_is_nothing_to_sign_in_to(desk):
    answer = await desk.get("/console/sign-in")
    assert answer.headers["location"] == "/console/overview"
    assert "Sign in" not in (await desk.get("/console/overview")).text


@pytest.mark.parametrize("reads", ["open"])
async def test_with_open_reads_a_guest_signs_in_to_change_something(desk):
    page = await desk.get("/console/groups")
    assert page.status_code == 200
    assert "/console/sign-in?next=/console/groups" in page.text
    answer = await desk.get("/console/groups/new")
    assert answer.headers["location"] == "/console/sign-in?next=/console/groups/new"
