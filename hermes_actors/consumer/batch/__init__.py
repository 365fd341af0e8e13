"""Batch delivery."""
