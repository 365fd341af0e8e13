"""Our own HTTP/1.1 client, on the host loop."""
