"""The embedded log: one SQLite file for each datacentre, written by one thread."""
