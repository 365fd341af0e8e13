"""The simulated environment of production nodes: clocks, disks, logs, connections, subscribers."""
