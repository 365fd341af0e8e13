"""Reports for people: one page that needs nothing beside it."""
