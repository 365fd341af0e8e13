"""Membership, leadership and ownership in a datacentre: one log, which all nodes fold alike."""
