"""Dead letters: kept, and delivered again."""
