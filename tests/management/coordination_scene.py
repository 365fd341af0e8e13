"""A hand-written coordination log, as management follows it."""

from hermes_actors.coordination.commands import Assignment, Plan, Target
from hermes_actors.coordination.state import CoordinationState

ORDERS = "shop.orders$billing"
T0_MS = 1_700_000_000_000


class Followed:
    """Holds the given records, 100 ms apart."""

    def __init__(self, *saids):
        self.state = CoordinationState()
        self.trouble = ""
        self.say(*saids)

    def say(self, *saids):
        for said in saids:
            at = self.state.position
            self.state.apply(at, T0_MS + 100 * at, said)

    def plan(self, name, *targets, reasons=()):
        """The leader's plan for one subscription; each target is a boot and its partitions."""
        state = self.state
        assignment = Assignment(name, tuple(Target(*target) for target in targets), reasons)
        self.say(Plan(state.leader, state.term, state.plan_offset, (assignment,)))
