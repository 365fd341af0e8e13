"""Schemas of messages: compiled and checked within bounded time, on the loop or in a worker."""
