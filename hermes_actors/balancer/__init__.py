"""The balance of work: which node runs which subscription."""
