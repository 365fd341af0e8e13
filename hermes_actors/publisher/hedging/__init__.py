"""One topic's batches in several datacentres: what is decided, and what is sent."""
