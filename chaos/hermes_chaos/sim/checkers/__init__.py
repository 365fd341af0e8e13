"""Checkers: each judges one promise of the product from what the edges tell."""
