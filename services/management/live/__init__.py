"""Live updates: what changes is pushed to the WebSockets that asked for it and may see it."""
