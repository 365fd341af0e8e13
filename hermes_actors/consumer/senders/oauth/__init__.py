"""OAuth tokens for pushes."""
