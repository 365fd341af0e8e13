"""`hermes subscription …`: what subscriptions are, how they fare, and where they go on."""
