"""Codecs: scripts and the steps that run them."""

from hashlib import sha256
from typing import Annotated

import msgspec

MOST_SCRIPT = 256 * 1024
"""Characters of a script."""
MOST_SCRIPTS = 8
MOST_STEPS = 8

Entry = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_$][A-Za-z0-9_$]{0,63}$")]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Script = Annotated[str, msgspec.Meta(min_length=1, max_length=MOST_SCRIPT)]


class Argument(msgspec.Struct, frozen=True):
    """What a function is given: what the function before gave, or something known by name."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    payload: bool = False


class Step(msgspec.Struct, frozen=True):
    """A function of a script."""

    script: Name
    entry: Entry
    args: Annotated[list[Argument], msgspec.Meta(min_length=1, max_length=8)]


class CodecFailed(Exception):
    """The codec did not give an answer; the text says why."""


Chain = Annotated[list[Step], msgspec.Meta(max_length=MOST_STEPS)]


class Codec(msgspec.Struct, frozen=True, kw_only=True):
    """Decodes what a device sends, and encodes what it is sent."""

    scripts: Annotated[dict[Name, Script], msgspec.Meta(min_length=1, max_length=MOST_SCRIPTS)]
    decoder: Annotated[list[Step], msgspec.Meta(min_length=1, max_length=MOST_STEPS)]
    encoder: Chain = []

    @property
    def version(self) -> str:
        """What tells it from every other codec."""
        return sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:16]


LARGEST_PORT = 223
"""Ports of applications are 1 to 223 (LoRaWAN 1.0.4, 4.3.2)."""
MOST_BYTES = 255
"""Bytes of a LoRa frame."""
