"""Bodies that clients send and are shown: read, checked, merged, masked."""
