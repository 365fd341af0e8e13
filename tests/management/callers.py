"""Callers, as headers that the tests' provider believes."""

ADMIN = {"x-user": "admin"}
SALES = {"x-user": "sam", "x-teams": "sales"}
"""Owns the topics that `api` creates."""
FINANCE = {"x-user": "fay", "x-teams": "finance"}
"""Owns the subscriptions that `api` creates."""
STRANGER = {"x-user": "sid", "x-teams": "marketing"}
