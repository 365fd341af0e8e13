"""PySpark jobs over the logs of all datacentres: what is stored where, and whether everything
arrived.
"""
