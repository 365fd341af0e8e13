"""The Kafka log: one cluster for each datacentre."""
