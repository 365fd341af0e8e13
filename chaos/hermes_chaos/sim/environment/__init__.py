"""The environment of production nodes in a run: clocks, disks, logs, connections, subscribers."""
