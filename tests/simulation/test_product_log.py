import logging

from hermes_actors.actors.supervisor import ActorCancelled
from hermes_chaos.sim.environment import product_log


def test_warnings_are_lines_and_errors_are_failures_unless_injected() -> None:
    lines: list[str] = []
    failures: list[str] = []
    logger = logging.getLogger("hermes_actors.somewhere")
    handlers = list(logging.getLogger("hermes_actors").handlers)
    with product_log.heard(lines.append, failures.append):
        logger.info("not worth a line")
        logger.warning("the log of %s is away", "dc1")
        logger.error("router failed: %r", ActorCancelled("cancelled by its supervisor"))
        logger.error("router failed: %r", KeyError("topic"))
        logger.error("spool: %d messages of %s set aside: %s", 1, "sim.passing", "topic_gone")
    assert len(lines) == 4
    assert lines[0] == "warning the log of dc1 is away"
    assert failures == ["error router failed: KeyError('topic')"]
    assert logging.getLogger("hermes_actors").handlers == handlers
