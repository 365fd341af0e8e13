"""A message's life from reading to settling, for serial and batch delivery."""
