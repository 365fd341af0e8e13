"""A topic's messages: read, previewed, tried against filters."""
