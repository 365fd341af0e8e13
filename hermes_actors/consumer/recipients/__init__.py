"""The recipients of a message, and the headers that it is pushed with."""
