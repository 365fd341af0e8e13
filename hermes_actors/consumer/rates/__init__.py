"""How fast an endpoint may be sent to."""
