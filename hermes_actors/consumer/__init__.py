"""The way out: log → window → sender → settled offset → commit.

Its rooms import downwards only: `serial`, `batch`, `reading` and `letters` are on top, `delivery`
holds what they share, and below it are `offsets`, `rates` and `recipients`, and then `senders`.
"""
