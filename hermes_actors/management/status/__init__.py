"""The state and health of nodes, topics and subscriptions."""
