"""Load balancing: which node consumes which partitions of which subscription."""
