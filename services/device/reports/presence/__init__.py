"""Presence: ONLINE, OFFLINE and DISCONNECT, from connections and, over HTTP, from reports."""
