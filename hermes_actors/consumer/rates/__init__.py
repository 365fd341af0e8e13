"""How fast an endpoint may be pushed to."""
