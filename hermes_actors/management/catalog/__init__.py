"""Groups, topics, subscriptions and schemas: created, changed and removed by rules."""
