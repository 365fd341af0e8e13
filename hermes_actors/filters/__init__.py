"""Filters of subscriptions: compiled once, they decide on each message within bounded time."""
