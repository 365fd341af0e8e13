"""The composition root: the supervision tree of one node, read top-down."""
