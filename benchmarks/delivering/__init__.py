"""What the delivery benchmark is made of."""
