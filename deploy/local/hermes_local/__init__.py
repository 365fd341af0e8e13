"""Launchers for a developer's machine: Kafka, and the services of a compose file, without Docker."""
