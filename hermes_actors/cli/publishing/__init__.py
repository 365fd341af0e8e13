"""`hermes publish`: one message, or many at a rate, each accounted for."""
