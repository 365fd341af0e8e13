"""The loops, the clocks and the signals of a process; all of it is passed in, nothing global."""
