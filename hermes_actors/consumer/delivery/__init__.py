"""The life of a message from its reading to its settling, for serial and batch delivery alike."""
