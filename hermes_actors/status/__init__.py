"""What each node says of itself once a second, and what management makes of it."""
