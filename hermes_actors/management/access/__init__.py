"""Who calls, what he may do, and whether anything may be changed."""
