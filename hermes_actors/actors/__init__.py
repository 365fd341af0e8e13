"""The actor kernel: bounded mailboxes, a pure restart policy, and a one-for-one supervisor.

It is independent of Hermes. For one-for-all supervision, use a trio nursery inside an actor; for
rest-for-one, nest supervisors.
"""
