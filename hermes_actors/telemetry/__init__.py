"""Plain counters of a node that exporters pull."""
