"""Launchers for one machine, without Docker: Kafka, and the services of a compose file."""
