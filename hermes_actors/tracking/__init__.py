"""Tracking: the events of single messages, recorded in each datacentre's log and found by message
id.
"""
