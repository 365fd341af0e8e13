"""Authentication and roles of callers: the same mechanisms for publishing and for management."""
