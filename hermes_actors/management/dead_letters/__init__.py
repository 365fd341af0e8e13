"""Dead letters: looked at, closed, delivered again."""
