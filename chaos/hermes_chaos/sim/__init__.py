"""Simulates whole clusters of the production actors in one trio run. Each seed is one exact
history.
"""
