"""What exists: groups, topics and subscriptions, folded from a log of commands."""
