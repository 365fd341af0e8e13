"""The console: pages at /console for people, over the parts of management."""
