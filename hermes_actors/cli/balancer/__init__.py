"""`hermes balancer …`: subscriptions' owners and the reasons, drained nodes, constraints."""
