"""Seeded bugs. Each is planted for a run, and some checker must catch it."""
