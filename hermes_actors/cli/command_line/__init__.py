"""Shared parts of all commands: options, names, bodies, times, failures."""
