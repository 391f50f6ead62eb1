"""What makes flows run: timers, events, and calls of their services."""
