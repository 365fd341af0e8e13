"""The metadata of a node: the logs that it folds."""

from hermes_actors.actors.supervisor import Supervisor
from hermes_actors.config import Config
from hermes_actors.log.base import Log
from hermes_actors.metadata.registry import Metadata, Registry
from hermes_actors.metadata.trail import ENTRIES_MAX
from hermes_actors.node.environment import NodeEnvironment


def start_metadata(
    config: Config, environment: NodeEnvironment, control: Supervisor
) -> tuple[Metadata, dict[str, Metadata]]:
    """Fold the own metadata log and those of the other datacentres, which are stand-ins and show
    what may be deleted. Returns the own metadata, and the others by datacentre.
    """

    def follow(log: Log, standins: tuple[Metadata, ...], entries_max: int) -> Metadata:
        metadata = Metadata(
            log,
            clock=environment.clock,
            ids=environment.ids,
            rng=environment.split_rng(),
            node=config.node,
            standins=standins,
            entries_max=entries_max,
        )
        control.start_task(f"registry {log.dc}", lambda stop: Registry(metadata).run(stop))
        return metadata

    others = {dc: follow(log, (), 0) for dc, log in environment.remote_logs.items()}
    audited = ENTRIES_MAX if "management" in config.roles else 0
    return follow(environment.log, tuple(others.values()), audited), others
