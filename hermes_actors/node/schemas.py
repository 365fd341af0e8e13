"""Sets up the schemas of a node: an external registry, if configured."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from hermes_actors.actors.restart import TENANT
from hermes_actors.node.environment import NodeEnvironment
from hermes_actors.node.running import Node
from hermes_actors.schema.external import ExternalSchemas


@asynccontextmanager
async def open_schemas(node: Node, environment: NodeEnvironment) -> AsyncIterator[None]:
    """Look schemas up in the configured registry during the block. Raises StartupError."""
    config = node.config.schema
    if config.registry == "embedded":
        yield
        return
    # Loading the machine's certificate authorities takes tens of milliseconds.
    client = await trio.to_thread.run_sync(environment.ask_registry, config)
    schemas = ExternalSchemas(
        client, config, node.metadata.catalog, environment.clock, environment.split_rng()
    )
    node.schemas, node.registry = schemas, client
    node.metrics.append(schemas.metrics)
    node.duties = {**node.duties, "schema registry": lambda: schemas.trouble}

    def renew(topic: str) -> None:
        if node.frontend is not None:
            node.frontend.routes.renew_schema(topic)

    schemas.listeners.append(renew)
    # If it stays broken, nothing else fails: known schemas stay in use.
    node.control.start_task("schema registry", schemas.run, restart=TENANT)
    try:
        yield
    finally:
        with trio.CancelScope(shield=True), trio.move_on_after(1):
            await client.close()
