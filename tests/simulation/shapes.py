"""Simulated runs that are short enough for `make check`."""

from dataclasses import replace

from hermes_chaos.sim.world import Shape

SOON_OVER = Shape(messages_per_publisher=5, load_s=1.0, settle_max_s=10.0, strikes=3)
SHORTER = replace(SOON_OVER, phases_in_turn=1, messages_per_phase=2, repeated_per_dc=1)
TINY = replace(SHORTER, bursts=(), afterwards_s=0.5)
"""Of half the work: it has no time for each promise, and is for what is said of any run."""
