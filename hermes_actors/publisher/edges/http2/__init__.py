"""HTTP/2: one connection and its streams, and its frames. No I/O."""
