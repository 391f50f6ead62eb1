"""Codecs: scripts and the steps that run their functions."""

from hashlib import sha256
from typing import Annotated

import msgspec

MAX_SCRIPT_LENGTH = 256 * 1024
"""Maximum characters of a script."""
MAX_SCRIPTS = 8
MAX_STEPS = 8

FunctionName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_$][A-Za-z0-9_$]{0,63}$")]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Script = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_SCRIPT_LENGTH)]


class CodecArgument(msgspec.Struct, frozen=True):
    """An argument of a step: its input, or a named value such as `port`."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    payload: bool = False
    """Whether the argument is the input of the step: the result of the previous step, or for the
    first step the bytes or values of the request."""


class CodecStep(msgspec.Struct, frozen=True):
    """A call of one function of a script."""

    script: Name
    """Name of the script."""
    entry: FunctionName
    """Name of the function."""
    args: Annotated[list[CodecArgument], msgspec.Meta(min_length=1, max_length=8)]
    """Arguments of the function in their order."""


class CodecFailed(Exception):
    """Running a codec failed; the message gives the reason."""


OptionalSteps = Annotated[list[CodecStep], msgspec.Meta(max_length=MAX_STEPS)]


class Codec(msgspec.Struct, frozen=True, kw_only=True):
    """The scripts of a product that decode uplinks and encode downlinks."""

    scripts: Annotated[dict[Name, Script], msgspec.Meta(min_length=1, max_length=MAX_SCRIPTS)]
    decoder: Annotated[list[CodecStep], msgspec.Meta(min_length=1, max_length=MAX_STEPS)]
    encoder: OptionalSteps = []

    @property
    def version(self) -> str:
        """Return a hash that identifies the content of the codec."""
        return sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:16]


MAX_LORAWAN_PORT = 223
"""Highest LoRaWAN port of applications (LoRaWAN 1.0.4, section 4.3.2); the lowest is 1."""
MAX_FRAME_BYTES = 255
"""Maximum bytes of a LoRaWAN frame."""
