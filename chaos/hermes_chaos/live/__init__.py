"""Faults in real processes and real networks."""
