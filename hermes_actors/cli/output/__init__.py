"""How commands answer: tables for people, the server's own JSON for programs."""
