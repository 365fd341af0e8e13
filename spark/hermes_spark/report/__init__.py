"""Reports for people, each a self-contained page."""
