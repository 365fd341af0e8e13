"""`hermes sink`: a subscriber that prints and counts pushes, and fails on request."""
