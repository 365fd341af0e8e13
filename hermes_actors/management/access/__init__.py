"""Access to management: callers, their roles, and the mode of the node (read-only or not)."""
