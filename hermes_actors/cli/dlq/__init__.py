"""`hermes dlq …`: a subscription's dead letters, looked at, delivered again, or closed."""
