"""`hermes sink`: a subscriber that prints, counts, and misbehaves on request."""
