"""A datacentre whose Kafka is lost, for a while or with its data, on two real Kafkas.

The same at full length, with exact figures: `hermes chaos dc-loss`, `blackout` and `rebuild`.
"""

from pathlib import Path

import pytest
import trio

from hermes_chaos.live import blackout, dc_loss, rebuild
from hermes_chaos.live.site import Site

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

# A busy machine is late, and that is no loss; the commands show the usual figures.
PATIENT = {
    "HERMES_FRONTEND_IDLE_TIMEOUT_MS": "10000",
    "HERMES_FRONTEND_LONG_IDLE_TIMEOUT_MS": "10000",
    "HERMES_FRONTEND_MAX_PUBLISH_REQUEST_DURATION_MS": "10000",
}


def say(text: str) -> None:
    """For people: pytest -s shows it."""
    print(f"\n{text}", end="")  # noqa: T201


async def test_a_stopped_and_a_killed_kafka_cost_no_publisher_an_answer(tmp_path: Path) -> None:
    lengths = dc_loss.Lengths(
        rate_per_s=100, calm_s=0.5, lost_s=3, recovery_s=1, slow_s=2, slow_delay_s=0.1
    )
    site = await trio.to_thread.run_sync(Site(tmp_path, PATIENT).__enter__)
    try:
        account = await dc_loss.lose_a_datacentre(site, lengths)
    finally:
        site.__exit__(None, None, None)
    say(account.report())
    assert account.refused == []
    assert account.copies.missing(account.sent) == []
    for name in ("stopped", "killed"):
        _, figures = account.phase(name)
        assert sum(figures.sent_again.values()) > 0
    slow, figures = account.phase("only slow")
    assert figures.hedged <= len(slow.sent) * 0.05 + 4 * 50
    assert account.copies.extra <= account.counted


@pytest.mark.soak
async def test_with_both_kafkas_dead_all_is_kept_and_stored_in_the_end(tmp_path: Path) -> None:
    lengths = blackout.Lengths(rate_per_s=200, calm_s=1, dark_s=6, recovery_s=1)
    site = await trio.to_thread.run_sync(
        Site(tmp_path, {**PATIENT, **blackout.VARIABLES}).__enter__
    )
    try:
        account = await blackout.black_out(site, lengths)
    finally:
        site.__exit__(None, None, None)
    say(account.report())
    assert account.violations == []
    assert sum(each.status == 202 for each in account.dark) > 100
    assert len(account.doubled) <= sum(
        account.counted.get(name, 0)
        for name in ("spool_replay_failures", "topic_duplicated_message", "fallback_unknown_copies")
    )


async def test_a_datacentre_that_lost_its_data_costs_what_waited_there_and_comes_back(
    tmp_path: Path,
) -> None:
    lengths = rebuild.Lengths(rate_per_s=30, calm_s=2, lost_s=2, recovery_s=3)
    site = Site(tmp_path, {**PATIENT, **rebuild.VARIABLES}, delivers=True)
    await trio.to_thread.run_sync(site.__enter__)
    try:
        account = await rebuild.rebuild_a_datacentre(site, lengths)
    finally:
        site.__exit__(None, None, None)
    say(account.report())
    assert account.violations == []
    assert account.missing == account.lost
    assert any(subscriber == rebuild.HELD for subscriber, _ in account.lost)
