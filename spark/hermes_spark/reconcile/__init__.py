"""Reconciliation: what was acknowledged, what is stored where, and what is settled."""
