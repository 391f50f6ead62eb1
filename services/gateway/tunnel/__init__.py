"""Tunnels of `/websocket` and `/mqtt`: connections that are forwarded to `management`."""
