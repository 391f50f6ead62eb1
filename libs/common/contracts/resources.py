"""Files that people uploaded to `management`, as other services read them: in parts."""

import msgspec

READ_RESOURCE = "rpc.management.read_resource"
PART = 512 * 1024
"""Bytes of a part, which fits into a message."""


class ReadResource(msgspec.Struct):
    """`read_resource`: a part of the file of a tenant that a URL names."""

    tenant: str
    url: str
    offset: int = 0


class ResourcePart(msgspec.Struct):
    """Answer of `read_resource`; the part is empty at the end."""

    name: str
    type: str
    """Media type of the whole."""
    content: bytes
