"""Deliveries one by one: queue, window, keys."""
