"""Replay: publishes again, under their own ids, the messages that a reconciliation
found missing.
"""
