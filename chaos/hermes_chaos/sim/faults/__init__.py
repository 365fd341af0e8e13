"""The faults of a run."""
