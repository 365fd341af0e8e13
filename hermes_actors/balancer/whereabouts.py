"""The whereabouts of a subscription that this node has not, in words for people."""

from hermes_actors.coordination.view import Coordination


def whereabouts(coordination: Coordination, subscription: str, boot: str) -> str:
    """Return where its partitions are, or why nobody has them; `boot` is this node."""
    state = coordination.state
    nodes = sorted(
        {state.node_of(grant.boot) for grant in state.grants(subscription) if grant.boot != boot}
    )
    if nodes:
        return f"runs on node{'s' if len(nodes) > 1 else ''} {', '.join(nodes)}"
    if not coordination.is_current:
        return f"it is not known who is to run it: {coordination.trouble}"
    waiting = sorted({state.node_of(target.boot) for target in state.waiting(subscription)})
    if waiting:
        return f"goes over to {', '.join(waiting)}"
    if not state.leader:
        return "no node runs it yet: none leads, so that nobody says who is to run it"
    return f"no node runs it yet: {state.node_of(state.leader)} has to plan it"
