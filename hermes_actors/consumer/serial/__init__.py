"""Serial delivery: queue, window, keys."""
