"""HTTP/1.1 for publishers: a parser and a connection without I/O, and their asyncio shell."""
