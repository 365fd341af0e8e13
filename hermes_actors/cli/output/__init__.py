"""Output of commands: tables for people, the server's JSON for programs."""
