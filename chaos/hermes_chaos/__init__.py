"""Fault injection for hermes_actors: deterministic simulation of whole clusters."""
