"""A page of another origin, opened in a browser that remembers a password, changes nothing."""

import msgspec
import pytest

from hermes_actors.config import Config, ConfigError, ManagementConfig
from hermes_actors.config.checks import check

HERE = "http://localhost"
CONSOLE = "https://console.example.com"
CHANGES = (
    ("POST", "/mode?mode=readOnly", None),
    ("POST", "/groups", {"groupName": "forged"}),
    ("PUT", "/topics/shop.orders", {"description": "forged"}),
    ("DELETE", "/topics/shop.orders", None),
)


async def statuses(api, headers) -> list[int]:
    found = []
    for method, path, body in CHANGES:
        content = {} if body is None else {"json": body}
        answer = await api.client.request(method, path, headers=headers, **content)
        found.append(answer.status_code)
        if answer.status_code == 403:
            assert api.refusal(answer) == (403, "PERMISSION_DENIED")
            assert "management.trusted_origins" in api.message(answer)
            assert answer.headers["access-control-allow-origin"]
    return found


FOREIGN = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://localhost.evil.example"},
    {"origin": "http://localhost:81"},
    {"origin": "http://evil.example/management"},
    {"origin": ""},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site", "origin": "http://other.example"},
    {"sec-fetch-site": "cross-site", "origin": HERE},
]
OWN = [
    {},
    {"origin": HERE},
    {"origin": "HTTP://LocalHost"},
    {"origin": "http://localhost:80"},
    {"origin": "https://localhost"},
    {"sec-fetch-site": "none"},
    {"sec-fetch-site": "same-origin", "origin": HERE},
    # The browser knows; a proxy in front has another name here than there.
    {"sec-fetch-site": "same-origin", "origin": "https://hermes.example.com"},
]


@pytest.mark.parametrize("headers", FOREIGN)
async def test_a_foreign_page_changes_nothing(api, headers):
    await api.with_topic()
    assert await statuses(api, headers) == [403, 403, 403, 403]
    assert (await api.get("/mode")).text == "readWrite"
    assert (await api.get("/groups")).json() == ["shop"]
    assert (await api.get("/topics/shop.orders")).json()["description"] == "what is ordered"


@pytest.mark.parametrize("headers", OWN)
async def test_commands_and_own_pages_change_what_they_did(api, headers):
    await api.with_topic()
    assert await statuses(api, headers) == [200, 201, 200, 200]


@pytest.mark.parametrize(
    ("given", "foreign"),
    [
        ({"trusted_origins": ["https://a.example", "HTTPS://Console.example.com"]}, 403),
        ({"cors_allowed_origin": CONSOLE}, 403),
        ({"trusted_origins": ["*"]}, 200),
    ],
)
async def test_a_console_elsewhere_can_be_trusted(api, given, foreign):
    await api.with_topic()
    management = ManagementConfig(allow_removal=True, **given)
    api.config = msgspec.structs.replace(Config(), management=management)
    async with api.rebuilt() as api.client:
        for headers in (
            {"origin": CONSOLE},
            {"origin": CONSOLE, "sec-fetch-site": "cross-site"},
        ):
            answer = await api.client.post("/mode?mode=readWrite", headers=headers)
            assert answer.status_code == 200
        answer = await api.client.post("/mode?mode=readWrite", headers=FOREIGN[0])
        assert answer.status_code == foreign


@pytest.mark.parametrize(
    "origin", ["console.example.com", "https://a.example/console", "https://", "", "null"]
)
def test_what_is_no_origin_is_told(origin):
    config = msgspec.structs.replace(
        Config(), management=ManagementConfig(trusted_origins=[origin])
    )
    with pytest.raises(ConfigError, match=r"^management\.trusted_origins: "):
        check(config)
    check(msgspec.structs.replace(Config(), management=ManagementConfig(trusted_origins=[CONSOLE])))
    check(msgspec.structs.replace(Config(), management=ManagementConfig(trusted_origins=["*"])))
