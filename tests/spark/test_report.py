"""The report is one page that needs nothing beside it, whatever the names in it hold."""

import re

import pytest

from hermes_spark.reconcile.result import (
    Result,
    SubscriptionInDc,
    SubscriptionResult,
    TopicResult,
)

# Part of the extra [spark], which `make check` does without.
pytestmark = pytest.mark.spark

HOSTILE = '<script>alert("x")</script>&{{ 7 * 7 }}\u202e\x00$'


def result(topics=3, name="shop.t", lost=0):
    return Result(
        1_700_000_100_000,
        ["dc1", "dc2"],
        True,
        [
            TopicResult(
                f"{name}{number}",
                messages=1_000 + number,
                records=1_100,
                acknowledged=990,
                fates={"stored": 990 - lost} | ({"lost": lost} if lost else {}),
                stored_in={"dc1": 900, "dc2": 200},
                ways={"local": 1_000, "hedge": 100},
                duplicated=100,
                surplus=100,
                causes={"hedge": 80, "again": 20},
                lost_ids=[f"{name}-id-{each}" for each in range(lost)],
            )
            for number in range(topics)
        ],
        [
            SubscriptionResult(
                f"{name}{number}",
                f"s{each}",
                0,
                [
                    SubscriptionInDc(
                        "dc1", 900, number, 0, 1_700_000_000_000 if number else None, 2, 0
                    ),
                    SubscriptionInDc("dc2", 200, 0, 0, None, 0, 0),
                ],
            )
            for number in range(topics)
            for each in range(4)
        ],
    )


def page(found):
    from hermes_spark.report.page import page as made

    return made(found)


def test_the_page_answers_the_three_questions_at_its_top():
    text = page(result(lost=3))
    assert "<h1>Something is lost</h1>" in text
    assert "9 messages are acknowledged and in no datacentre&#39;s log: lost." in text
    assert "<code>shop.t-id-2</code>" in text
    assert "hedge 80, again 20" in text
    assert "<td>shop.t2$s3</td>" in text
    assert "100.0 s" in text


def test_the_same_result_gives_the_same_bytes_and_nothing_is_loaded():
    found = result()
    text = page(found)
    assert text == page(found)
    assert "<script" not in text
    addresses = set(re.findall(r"https?://[^\"' >]+", text))
    assert all(
        "w3.org" in each or "purl.org" in each or "creativecommons" in each for each in addresses
    )
    assert not re.search(r"<(link|img|iframe|object)\b|\b(src|@import)\s*=", text)


def test_names_are_shown_as_text_whatever_they_hold():
    text = page(result(name=HOSTILE, lost=1))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "49" not in re.findall(r"&amp;([^<]{0,8})", text)


def test_the_page_of_many_topics_stays_small():
    assert len(page(result(topics=500))) < 2_000_000
