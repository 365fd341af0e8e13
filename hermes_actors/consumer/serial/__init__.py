"""Deliveries one by one: lanes, window, keys."""
