"""Delivery latencies of messages, and the cost of hedging."""
