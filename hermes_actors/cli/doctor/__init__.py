"""`hermes doctor`: looks at a node and at all that it needs, and says what is wrong."""
