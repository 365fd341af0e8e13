"""Hands messages out to clients that fetch and acknowledge them."""
