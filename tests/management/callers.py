"""Who calls, as the headers that the tests' provider believes."""

ADMIN = {"x-user": "admin"}
SALES = {"x-user": "sam", "x-teams": "sales"}
"""Owns what `api.topic` makes."""
FINANCE = {"x-user": "fay", "x-teams": "finance"}
"""Owns what `api.subscription` makes."""
STRANGER = {"x-user": "sid", "x-teams": "marketing"}
