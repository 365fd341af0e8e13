"""Configuration as code: many groups, topics and subscriptions applied, or compared, at once."""
