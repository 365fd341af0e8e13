"""The message store: one `Log` for each datacentre. `base` defines the interface."""
