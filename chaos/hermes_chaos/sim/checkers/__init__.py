"""Checkers. Each judges one promise of the product from what is seen at its edges."""
