"""Faults done to real processes and real networks."""
