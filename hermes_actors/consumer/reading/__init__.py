"""Reading a subscription's records and filtering them."""
