"""Shapes of simulated runs for tests of any run."""

from dataclasses import replace

from hermes_chaos.sim.mutants.mutant import SHORT

SHORTER = replace(SHORT, phases_in_turn=1, messages_per_phase=2, repeated_per_dc=1)
TINY = replace(SHORTER, bursts=(), afterwards_s=0.5)
"""Too short to examine every promise."""
