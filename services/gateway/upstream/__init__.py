"""The services behind the gateway: connections to them, and what their failures mean.

An HTTP/1.1 client of our own on httptools (the parser that uvicorn uses). It does what a
proxy needs and no more, which is what makes the gateway as fast as it is: see
docs/decisions/0009 for the measurement against aiohttp's client.
"""
