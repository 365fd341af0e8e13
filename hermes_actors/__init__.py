"""hermes_actors: a multi-datacentre publish/subscribe broker over HTTP.

General layout, imports pointing down only (import-linter enforces it):

    node  cli                        what runs
    management publisher consumer balancer   what a node does; these never import each other
    metadata                         what exists: a folded log of commands
    log                              where records live: memory, embedded
    telemetry  config
    model  actors  runtime  errors   values, the actor kernel, the loops and clocks, errors
"""

__version__ = "0.1.0"
