"""What goes wrong in a run, and when."""
