"""Hedging of one topic's batches over several datacentres: the decisions, and the sending."""
