"""`hermes subscription …`: subscriptions, their state, and their positions."""
