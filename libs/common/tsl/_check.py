"""Check one value after the other, naming each fault: the slow path, and that of writes.

It accepts exactly what the decoders of `_fast` accept, and two more spellings that some
devices use: an integral float for an integer, and an integer for the key of an ENUM.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from libs.common.tsl._node import Node
from libs.common.tsl.faults import Fault
from libs.common.tsl.limits import MAX_KEY

PATTERNS = {
    "HEX": r"\A(?:[0-9A-Fa-f]{2})*\Z",
    "ASCII": r"\A[\x00-\x7f]*\Z",
    "BASE64": r"\A(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\Z",
}
"""What text of an encoding looks like; UTF8 is any text."""

_MATCHES = {name: re.compile(pattern).search for name, pattern in PATTERNS.items()}
_SURROGATE = re.compile("[\ud800-\udfff]")

type_names = {
    "BOOL": "true or false",
    "INT": "an integer",
    "LONG": "an integer",
    "DATE": "an integer (seconds)",
    "FLOAT": "a number",
    "DOUBLE": "a number",
    "STRING": "a text",
    "ENUM": "a text",
    "STRUCT": "an object",
    "ARRAY": "an array",
}


class _Refused(Exception):  # noqa: N818 - never leaves this module
    """A scalar that its node does not accept; the message is the reason."""
