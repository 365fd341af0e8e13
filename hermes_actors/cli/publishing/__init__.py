"""`hermes publish`: one message, or many, with the outcome of each."""
