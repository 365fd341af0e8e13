"""`hermes balancer …`: which node runs what and why, drained nodes, constraints."""
