"""Access to management: who calls, what he may do, and whether anything may be changed."""
