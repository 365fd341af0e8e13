"""PySpark jobs over the logs of all datacentres: what was stored where, and whether all arrived."""
