"""Values: names, topics, subscriptions, policies, messages and their record form."""
