"""What was promised: each checker judges one promise from what the edges tell."""
