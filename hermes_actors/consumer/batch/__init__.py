"""Deliveries in batches."""
