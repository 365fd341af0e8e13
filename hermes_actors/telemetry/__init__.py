"""Metrics of a node, for Prometheus or pushed to a collector, and traces."""
