"""What makes flows run: timers, events, messages of topics, addresses, calls of their services."""
