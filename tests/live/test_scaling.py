"""An autoscaler takes nodes away under load, also while a Kafka is down: no message gets lost.

`hermes chaos scale` is the long version. Run with -s to see the figures.
"""

from functools import partial

import pytest

from hermes_actors.runtime import guest
from hermes_chaos.live import scaling

pytestmark = [pytest.mark.live, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

LENGTHS = scaling.Lengths(
    rate_per_s=40, calm_s=1, dark_s=8, settle_s=6, consumers=2, subscriptions=2
)


def test_a_frontend_and_consumers_leave_and_join_and_everything_is_delivered(tmp_path):
    with scaling.open_site(tmp_path, LENGTHS) as site:
        drill = guest.run(partial(scaling.scale, site, LENGTHS))
    report = drill.report()
    print(f"\n{report}")  # noqa: T201
    assert drill.violations == []
    assert "scale.plain" in drill.hook[1]
    assert "Kafka of dc1" in drill.hook[1]
    shrinking, growing = drill.changes
    moved_ms = drill.owners.moved_ms(shrinking.begin_ms, shrinking.end_ms)
    assert len(moved_ms) == shrinking.least(drill.owners, shrinking.begin_ms) > 0
    assert drill.owners.moved_ms(growing.begin_ms, growing.end_ms)
