"""The parts with which every command reads its line: options, names, bodies, times, failures."""
