"""`hermes sink`: a subscriber that prints, counts and misbehaves as it is told."""
