"""Authentication, with the same mechanisms for publishing and management, and the address guard."""
