"""Queries and search over groups, topics and subscriptions."""
