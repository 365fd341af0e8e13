"""HTTP/1.1: a parser and a connection, without I/O."""
