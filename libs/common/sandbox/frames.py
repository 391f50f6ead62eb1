"""Frames on the pipes of a worker: a length, and so many bytes."""

import os
import struct

HEADER = struct.Struct(">I")
"""What stands before a frame on a pipe: its length."""


def read_frame(source: int) -> bytes | None:
    """The next frame of a pipe; None when it has ended."""
    header = _exactly(source, HEADER.size)
    return None if header is None else _exactly(source, HEADER.unpack(header)[0])


def write_frame(target: int, content: bytes) -> None:
    """Write a frame to a pipe."""
    rest = memoryview(HEADER.pack(len(content)) + content)
    while rest:
        rest = rest[os.write(target, rest) :]


def _exactly(source: int, size: int) -> bytes | None:
    content = b""
    while len(content) < size:
        more = os.read(source, size - len(content))
        if not more:
            return None
        content += more
    return content
