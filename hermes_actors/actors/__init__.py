"""The actor kernel: bounded mailboxes, a pure restart policy, a one-for-one supervisor.

It imports trio only and knows nothing of Hermes. One-for-all is a trio nursery inside an actor;
rest-for-one is nesting.
"""
