"""Who calls, and what he may do: the same mechanisms for publishing and for management."""
