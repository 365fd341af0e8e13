"""Offsets and lags of subscriptions, and retransmission."""
