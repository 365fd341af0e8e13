"""Metadata: a log of commands, folded by every node to the same groups, topics, subscriptions."""
