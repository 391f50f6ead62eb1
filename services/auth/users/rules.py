"""What an e-mail address and a nickname must be like."""

import re

from libs.common.errors import InvalidInput, MalformedRequest
from libs.common.http.console import name_of

SHORTEST_EMAIL, LONGEST_EMAIL = 5, 255
LONGEST_NICKNAME = 127
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_EMAIL = re.compile(rf"[A-Za-z0-9.!#$%&'*+/=?^_`{{|}}~-]{{1,64}}@{_LABEL}(?:\.{_LABEL})+")
"""HTML's valid e-mail address (https://html.spec.whatwg.org/#valid-e-mail-address), with a dot
in its domain."""


def checked_email(text: str) -> str:
    """The address without space around it; raise `InvalidInput` that names `email`."""
    email = text.strip()
    if not email:
        raise MalformedRequest("must not be blank", field="email")
    if not SHORTEST_EMAIL <= len(email) <= LONGEST_EMAIL:
        raise InvalidInput(
            f"must have {SHORTEST_EMAIL} to {LONGEST_EMAIL} characters", field="email"
        )
    if not _EMAIL.fullmatch(email):
        raise InvalidInput("must be an e-mail address", field="email")
    return email


def checked_nickname(text: str) -> str:
    """The nickname without space around it; raise `InvalidInput` that names `nickname`."""
    return name_of(text, "nickname", LONGEST_NICKNAME)
