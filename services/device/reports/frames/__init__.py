"""Frames: uplinks of network servers, read by codecs, and kept to be read again."""
