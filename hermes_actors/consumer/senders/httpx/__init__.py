"""The sender for HTTP/2 and proxies, on httpcore."""
