"""A publisher's list is read whole, in whichever form it comes, or not at all."""

import pytest

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.main import app
from hermes_spark.reconcile.acknowledged import acknowledged, acknowledged_list
from hermes_spark.snapshot import Datacentre, EmbeddedLog, Snapshot
from hermes_spark.sources.failures import SourceFailed, source_failures
from hermes_spark.taking import take_snapshot
from tests.spark.stored_scene import enveloped, fill_embedded, native

NOTHING = Snapshot(0, {})
BOM = b"\xef\xbb\xbf"


def rows_of(spark, folder, **contents):
    """The rows of some lists, read by one job."""
    lists = []
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        lists.append(acknowledged_list(str(folder / name)))
    with source_failures():
        rows = acknowledged(spark, lists, NOTHING).collect()
    return sorted((row.topic, row.message_id, row.status) for row in rows)


def test_columns_are_found_by_their_names(spark, tmp_path):
    contents = {
        "other order.csv": b"more,sentMs,messageId,topic\r\n7,5,a,shop.orders\r\n",
        "few.csv": BOM + b"topic,messageId\nshop.orders,b\n",
        "text.ndjson": BOM + b'{"topic":"shop.orders","messageId":"c","status":"201"}\n',
        "{x}[1]*.json": b'{"topic":"shop.orders","messageId":"d","status":null}\n{"status":429}',
    }
    found = rows_of(spark, tmp_path, **contents)
    assert found == [("shop.orders", each, 201) for each in "abcd"]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.ndjson", b'{"topic":"t.a","messageId":"a"}\n{"topic":"t.a","id":"b"}', "no messageId"),
        ("b.ndjson", b'{"messageId":"a"}', "has no topic"),
        ("c.ndjson", b'{"topic":"t.a","messageId":"a"', "FAILED_READ_FILE.*MALFORMED_RECORD"),
        ("d.ndjson", b'{"topic":"t.a","messageId":"a","sentMs":%d}' % 10**30, "cannot be cast"),
    ],
)
def test_a_line_that_says_too_little_ends_the_run(spark, tmp_path, name, content, complaint):
    with pytest.raises(SourceFailed, match=complaint):
        rows_of(spark, tmp_path, **{name: content})


def test_a_list_that_would_be_passed_over_is_refused(spark, tmp_path):
    with pytest.raises(UsageWrong, match="rename it"):
        rows_of(spark, tmp_path, **{"_sent.ndjson": b""})
    with pytest.raises(UsageWrong, match="has no column topic"):
        rows_of(spark, tmp_path, **{"plain.csv": b"t.a,a\nt.a,b\n"})
    with pytest.raises(UsageWrong, match="no datacentre has that topic"):
        acknowledged(spark, [acknowledged_list("topic:shop.sent")], NOTHING)


def test_messages_of_a_list_may_lie_in_hermes_own_envelope(spark, tmp_path):
    said = enveloped(b'{"topic":"shop.orders","messageId":"a"}', "e-1")
    fill_embedded(tmp_path / "dc1", {"shop.sent": [[said]]})
    described = {"dc1": Datacentre(EmbeddedLog(str(tmp_path / "dc1")))}
    snapshot = take_snapshot(described, 9, lambda: None)
    (row,) = acknowledged(spark, [acknowledged_list("topic:shop.sent")], snapshot).collect()
    assert (row.topic, row.message_id) == ("shop.orders", "a")


def test_a_run_that_could_not_look_is_no_loss(spark, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fill_embedded(tmp_path / "dc1", {"shop.orders": [[native(1)]]})
    (tmp_path / "a.ndjson").write_text('{"topic":"shop.orders"}\n')
    (tmp_path / "b.txt").write_text("id-1\n")

    def ended(*arguments):
        with pytest.raises(SystemExit) as end:
            app(["spark", "reconcile", "-o", "out", *arguments])
        return end.value.code, capsys.readouterr().err

    assert ended("--dc", "dc1=embedded:none")[0] == 2
    code, said = ended("--dc", "dc1=embedded:dc1", "--acknowledged", "a.ndjson")
    assert (code, "has no messageId" in said) == (2, True)
    mistyped = ("--acknowledged", "shop.orders=b.txt", "--topic", "shop.order")
    code, said = ended("--dc", "dc1=embedded:dc1", *mistyped)
    assert (code, "--topic shop.order: no datacentre and no list" in said) == (2, True)
