"""What every command reads its line with: options, names, bodies, times, and how it fails."""
