"""Senders, which carry pushes to endpoints."""
