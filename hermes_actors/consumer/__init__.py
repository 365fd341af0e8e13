"""The delivery side: log → window → sender → settled offset → commit.

Its packages import downwards only: `serial`, `batch`, `reading` and `letters` are on top;
`delivery` holds what they share; below are `offsets`, `rates` and `recipients`, and then `senders`.
"""
