"""A datacentre is lost, then its log: what is doubled and missing is found, and put back."""

import json

import pytest

from hermes_actors.cli.main import app
from hermes_actors.runtime import guest
from hermes_chaos.live import dc_loss
from hermes_chaos.live.site import Site
from tests.spark.kafka_oracle import causes, lose, records_of

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(400),
]

LENGTHS = dc_loss.Lengths(
    rate_per_s=200, calm_s=1, lost_s=4, recovery_s=1, slow_s=2, slow_delay_s=0.1
)
VARIABLES = {
    "HERMES_FRONTEND_REPLAY": "true",
    "HERMES_FRONTEND_IDLE_TIMEOUT_MS": "2000",
    "HERMES_FRONTEND_LONG_IDLE_TIMEOUT_MS": "2000",
    "HERMES_FRONTEND_MAX_PUBLISH_REQUEST_DURATION_MS": "2000",
}
TOPICS = list(dc_loss.TOPICS)


def hermes(*arguments):
    """The exit code of `hermes spark …`."""
    with pytest.raises(SystemExit) as end:
        app(["spark", *map(str, arguments)])
    return end.value.code


def result_in(folder):
    result = json.loads((folder / "result.json").read_bytes())
    return result["verdict"], {each["topic"]: each for each in result["topics"]}


def lost_in(spark, folder):
    """The lost messages, from the table: bit 1 is acknowledged."""
    rows = spark.read.parquet(str(folder / "messages")).where("copies = 0 AND flags & 1 = 1")
    return {(row.topic, row.message_id) for row in rows.collect()}


def test_what_is_doubled_and_missing_is_found_and_put_back(spark, tmp_path):
    with Site(tmp_path, VARIABLES) as site:
        account = guest.run(dc_loss.lose_a_datacentre, site, LENGTHS)
        sent = {(each.topic, each.message_id) for each in account.sent if each.is_accepted}
        lists = tmp_path / "sent.ndjson"
        lists.write_text(
            "".join(
                json.dumps({"topic": topic, "messageId": message_id, "status": 201}) + "\n"
                for topic, message_id in sorted(sent)
            )
        )
        servers = {dc: cluster.bootstrap_servers[0] for dc, cluster in site.kafka.items()}
        logs = [word for dc, each in servers.items() for word in ("--dc", f"{dc}=kafka:{each}")]
        logs += [word for topic in TOPICS for word in ("--topic", topic)]

        def reconciled(name):
            """Exit code, verdict, and the topics' results."""
            folder = tmp_path / name
            code = hermes("reconcile", *logs, "--acknowledged", lists, "--output", folder)
            return code, *result_in(folder)

        held = records_of(servers, TOPICS)
        assert sent <= {each[:2] for each in held}
        code, verdict, topics = reconciled("calm")
        assert (code, verdict) == (0, "clean")
        by_cause, surplus = causes(held)
        assert sum(surplus.values()) > 0
        assert {name: each["causes"] for name, each in topics.items() if each["causes"]} == by_cause
        assert {
            name: each["surplus"] for name, each in topics.items() if each["surplus"]
        } == surplus
        assert hermes("archive", "append", tmp_path / "archive", *logs) == 0

        # The nodes know the topics of before: they would go on where those ended.
        site.first.kill()
        site.second.kill()
        lose(servers["dc1"], TOPICS)
        missing = sent - {each[:2] for each in records_of(servers, TOPICS)}
        assert len(missing) > 100
        code, verdict, topics = reconciled("lost")
        assert (code, verdict) == (1, "lost")
        assert sum(each["fates"]["lost"] for each in topics.values()) == len(missing)
        assert lost_in(spark, tmp_path / "lost") == missing

        replay = ["replay", tmp_path / "lost", "--archive", tmp_path / "archive", "--rate", 2_000]
        replay += ["--publish-url", site.other.url]
        assert hermes(*replay, "--dry-run") == 0
        assert missing == sent - {each[:2] for each in records_of(servers, TOPICS)}
        assert hermes(*replay) == 0
        assert hermes(*replay) == 0
        again = records_of(servers, TOPICS)
        assert sent <= {each[:2] for each in again}
        # A replay may be hedged, as any publish; nothing was sent twice.
        put_back = [each for each in again if each[:2] in missing]
        assert len(put_back) == len(set(put_back))
        code, verdict, topics = reconciled("again")
        assert (code, verdict) == (0, "clean")
        assert {name: each["causes"] for name, each in topics.items() if each["causes"]} == causes(
            again
        )[0]
