"""A topic's messages: read, previewed, tracked, and tried against filters and endpoints."""
