"""Connections to the services behind the gateway, and their failures.

This is an HTTP/1.1 client on httptools (the parser of uvicorn) with only the functions of a proxy,
which makes the gateway fast: docs/decisions/0009 compares it with aiohttp's client.
"""
