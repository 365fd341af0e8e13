"""What a job found, for people: one page that needs nothing beside it."""
