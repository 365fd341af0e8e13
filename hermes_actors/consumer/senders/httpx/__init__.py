"""HTTP/2 and proxies, on a library."""
