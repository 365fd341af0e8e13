"""Re-driving dead letters, and counting the open ones."""
