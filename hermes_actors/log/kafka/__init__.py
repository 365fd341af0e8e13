"""The production log: one Kafka cluster for each datacentre."""
