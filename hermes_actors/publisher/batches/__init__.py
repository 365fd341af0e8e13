"""Many messages in one request: forms that are taken apart, streams that answer line by line."""
