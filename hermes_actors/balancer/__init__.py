"""Who does what: which node runs which subscription."""
