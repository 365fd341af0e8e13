"""The workload of a run: publishers, and people who administer the cluster."""
