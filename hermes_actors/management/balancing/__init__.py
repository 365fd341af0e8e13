"""Who runs what and why, and what administrators ask of it."""
