"""hermes_actors: a multi-datacentre publish/subscribe broker over HTTP.

General layout, imports pointing down only (import-linter enforces it):

    cli  listeners                   commands, and a node with its sockets
    node                             what a node is made of, and who supervises whom
    management publisher consumer balancer   what a node does; these never import each other
    filters fallback security        parts of that
    coordination status              who owns what, and how each node fares: folded logs
    metadata                         what exists: a folded log of commands
    log                              where records live: memory, embedded, Kafka
    telemetry  config
    model  actors  runtime  errors   values, the actor kernel, the loops and clocks, errors
"""

__version__ = "0.1.0"
