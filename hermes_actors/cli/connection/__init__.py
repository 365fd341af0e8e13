"""How commands reach nodes: the management API, and plain HTTP/1.1 of both sides."""
