"""How far subscriptions are in the logs, and how they are taken elsewhere."""
