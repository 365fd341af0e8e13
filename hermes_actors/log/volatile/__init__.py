"""Topics whose messages are only in the memory of the nodes that accept them."""
