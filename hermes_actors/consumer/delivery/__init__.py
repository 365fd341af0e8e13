"""What may become of a message between its reading and its settling, for serial and batch alike."""
