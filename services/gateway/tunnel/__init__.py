"""Tunnels of `/websocket` and `/mqtt` to `management`."""
