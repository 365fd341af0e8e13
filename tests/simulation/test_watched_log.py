"""The checkers are told what the subscriptions of a run do, and of no others."""

from hermes_actors.log.base import TopicSettings
from hermes_actors.model.dead_letter import Letter, dlq_topic, letter_record
from hermes_actors.model.topic import Ack
from hermes_chaos.sim.environment.watched_log import watched_log
from hermes_chaos.sim.history.events import Event, History, Lettered
from hermes_chaos.sim.history.trace import Trace
from hermes_chaos.sim.workload.plans import GROUP

KNOWN, PASSING = f"{GROUP}.ledger", f"{GROUP}.passing"


async def test_poison_of_a_subscription_that_no_checker_knows_is_not_told(autojump_clock) -> None:
    """It is kept whether or not the subscription wants dead letters."""
    told: list[Event] = []
    history = History()
    history.watchers.append(told.append)
    log = watched_log("dc1", 1, {f"{KNOWN}_1": KNOWN}, history, Trace())
    topic = dlq_topic(GROUP)
    await log.topics.create(topic, TopicSettings(1))
    letters = [poison(KNOWN), poison(PASSING)]
    await log.append(topic, 0, [letter_record(each) for each in letters], Ack.ALL)
    assert [each.letter for each in told if isinstance(each, Lettered)] == letters[:1]


def poison(topic: str) -> Letter:
    return Letter(
        dc="dc1",
        subscription=f"{topic}$visitor",
        incarnation=1,
        log_topic=f"{topic}_1",
        partition=0,
        offset=3,
        timestamp_ms=1,
        key=None,
        value=b"{}",
        headers=(),
        message_id="id3",
        reason="poison",
        detail="",
        attempts=0,
        status=0,
        at_ms=2,
    )
