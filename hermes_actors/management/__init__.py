"""The administration REST API, wire-compatible with Hermes'."""
