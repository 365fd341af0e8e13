"""The parts of the fail-over benchmark."""
