"""Seeded bugs: each is planted for a run, and some checker must catch it."""
