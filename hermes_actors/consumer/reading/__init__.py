"""The reading of a subscription: records, and the filters that they are looked at with."""
