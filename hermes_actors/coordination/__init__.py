"""Membership, leadership and ownership in a datacentre, derived from one log that all nodes fold
alike.
"""
