"""Thin HTTP edges over the one gateway: ASGI and RSGI, on the host loop."""
