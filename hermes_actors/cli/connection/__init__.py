"""Clients with which commands call nodes: for the management API, and for POSTs over HTTP/1.1."""
