"""Tokens for endpoints that ask for them."""
