"""Codecs: what makes properties of a device's bytes, and bytes of a command."""
