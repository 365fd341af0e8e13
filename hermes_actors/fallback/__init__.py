"""Keeps publishing available when the own datacentre's log is not: other datacentres, and the
spool.
"""
