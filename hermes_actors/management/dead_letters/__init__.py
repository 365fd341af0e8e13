"""What was given up: looked at, closed, delivered again."""
