"""`hermes doctor`: looks at all that a node needs, and says what is wrong and the way out."""
