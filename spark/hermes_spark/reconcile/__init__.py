"""Reconciliation: compares what was acknowledged, stored and settled."""
