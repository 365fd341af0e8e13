"""The way of a request in and of its answer out, whatever route it takes."""
