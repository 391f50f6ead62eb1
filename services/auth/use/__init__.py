"""What callers use of what they may use."""
