"""Tracking: what became of single messages, told to each datacentre's log, found by id."""
