"""`hermes doctor`: checks a node and everything that it needs."""
