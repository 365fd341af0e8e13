"""The parts of the delivery benchmark."""
