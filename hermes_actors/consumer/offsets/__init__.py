"""Which offsets are settled, and what is committed of them."""
