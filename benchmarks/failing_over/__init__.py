"""What the fail-over benchmark is made of."""
