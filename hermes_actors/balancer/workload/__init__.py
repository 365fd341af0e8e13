"""Which node is to own which partitions of which subscription: pure and deterministic."""
