"""The reading of a subscription: records, filters, and how far each partition is settled."""
