"""HTTP in front of the gateway: HTTP/1.1 by an edge of its own, HTTP/2 by hypercorn."""
