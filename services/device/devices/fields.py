"""Kinds of fields that several bodies share."""

from typing import Annotated

import msgspec

Name = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=128,
        pattern=r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$",
        description="1 to 128 characters, not all blank, none a control character",
    ),
]

Line = Annotated[str, msgspec.Meta(max_length=128, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""A short text of one line; may be empty."""

Text = Annotated[str, msgspec.Meta(max_length=1024)]

Tag = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f\x7f]*$")]

Tags = Annotated[list[Tag], msgspec.Meta(max_length=20)]
"""At most 20 per device (field notes, section 3)."""

Id = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]
"""A number, or a string of decimal digits (Decision 1)."""
