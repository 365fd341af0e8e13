"""A node's knowledge of schemas: of the external registry, if there is one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from hermes_actors.actors.restart import TENANT
from hermes_actors.node.environment import NodeEnvironment
from hermes_actors.node.running import Node
from hermes_actors.schema.external import ExternalSchemas


@asynccontextmanager
async def open_schemas(node: Node, environment: NodeEnvironment) -> AsyncIterator[None]:
    """For the length of the block look schemas up where they are kept. Raises StartupError."""
    config = node.config.schema
    if config.registry == "embedded":
        yield
        return
    # Reading the machine's authorities takes tens of milliseconds.
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
    # What stays broken here takes nothing else down: known schemas stay in use.
    node.control.start_task("schema registry", schemas.run, restart=TENANT)
    try:
        yield
    finally:
        with trio.CancelScope(shield=True), trio.move_on_after(1):
            await client.close()
