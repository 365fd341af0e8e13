"""Many messages in one request: parsing the forms of a batch, and answering line by line."""
