"""Plans which node owns which partitions of which subscription. Pure and deterministic."""
