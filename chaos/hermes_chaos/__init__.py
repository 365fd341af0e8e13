"""Fault injection for hermes_actors: simulated clusters, and faults for real processes."""
