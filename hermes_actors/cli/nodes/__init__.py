"""`hermes dev|node|spool|config|user`: nodes on this machine, and their files."""
