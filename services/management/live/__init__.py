"""Live updates: changes are sent to the WebSockets that subscribed and may see them."""
