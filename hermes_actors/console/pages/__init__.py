"""One file for each page: what it shows, through the parts of management, and its routes."""
