"""Subscription filters: compiled once, they decide on each message within bounded time."""
