"""Administration of the balancers: ownership and its reasons, drains, workload constraints."""
