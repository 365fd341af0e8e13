"""What happened in a run, and what follows from it by the rules alone."""
