"""What the production nodes stand on in a run: clocks, disks, logs, connections, subscribers."""
