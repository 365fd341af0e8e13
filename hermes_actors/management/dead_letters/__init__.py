"""Dead letters: listed, closed, and delivered again (re-driven)."""
