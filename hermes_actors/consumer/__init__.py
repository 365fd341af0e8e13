"""The way out: log → window → sender → settled offset → commit."""
