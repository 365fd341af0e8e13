"""The OpenAPI document and its page for readers."""

import re

import pytest


@pytest.fixture
async def page(api):
    answer = await api.get("/docs")
    assert answer.status_code == 200
    return answer


async def test_the_page_shows_each_operation_and_each_of_its_links_leads_somewhere(api, page):
    document = (await api.get("/openapi.json")).json()
    operations = [each for item in document["paths"].values() for each in item.values()]
    anchors = re.findall(' id="([^"]+)"', page.text)
    assert len(set(anchors)) == len(anchors)
    assert set(anchors) >= {each["operationId"] for each in operations}
    links = set(re.findall('href="([^"]+)"', page.text))
    assert links - {f"#{each}" for each in anchors} == {"openapi.json"}


async def test_the_page_needs_no_script_and_nothing_from_elsewhere(page):
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search("<script|<link|<img|@import|url\\(| on[a-z]+=| style=", page.text)


async def test_texts_are_escaped(page):
    assert "-d &#39;{&#34;groupName&#34;: &#34;shop&#34;" in page.text


async def test_each_parameter_has_a_description_and_each_body_an_example(api):
    document = (await api.get("/openapi.json")).json()
    schemas = document["components"]["schemas"]
    for path, item in document["paths"].items():
        for operation in item.values():
            for each in operation.get("parameters", ()):
                assert each.keys() >= {"description", "example"}, (path, each["name"])
            for content in operation.get("requestBody", {}).get("content", {}).values():
                name = content["schema"].get("$ref", "").rpartition("/")[2]
                # A schema of messages is any JSON, and a backup is lines.
                is_named = "examples" in schemas.get(name, ())
                assert is_named or path.endswith(("/schema", "/restore")), path
