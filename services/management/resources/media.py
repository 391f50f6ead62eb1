"""Which kind of file some bytes are: by what they are, whatever somebody says of them."""

import re

SVG = "image/svg+xml"
ZIP = "application/zip"
TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp", SVG, ZIP)
_BEGINS = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"PK\x03\x04"), ZIP),
)
_SVG = re.compile(rb"<svg[\s>/]")
_LOOKED = 8192
"""Bytes of a text before the first of which an SVG's root must stand."""


def type_of(content: bytes) -> str | None:
    """The media type, None for what is neither a picture that browsers show nor a ZIP."""
    for begins, media_type in _BEGINS:
        if begins.match(content):
            return media_type
    return SVG if _is_svg(content[:_LOOKED]) else None


def _is_svg(text: bytes) -> bool:
    """Whether the first element is `svg`; a document that declares entities is not taken."""
    text = text.removeprefix(b"\xef\xbb\xbf").lstrip()
    while text.startswith((b"<?", b"<!")):
        end = b"-->" if text.startswith(b"<!--") else b">"
        text = text.partition(end)[2].lstrip()
    return _SVG.match(text) is not None
