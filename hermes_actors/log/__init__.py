"""The message store: one `Log` is one datacentre's log. See `base` for the seam."""
