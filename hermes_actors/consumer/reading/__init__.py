"""What is read, what is wanted of it, and how far each partition is settled."""
