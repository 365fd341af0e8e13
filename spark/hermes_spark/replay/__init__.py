"""Replay: what a reconciliation found missing is published again, under its own ids."""
