"""What an e-mail address, a nickname and a password must be like."""

import re
import secrets
import string

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


SHORTEST, LONGEST = 8, 63
_PRINTABLE = re.compile(r"[!-~]+")
_NEEDED = {"an upper-case letter": r"[A-Z]", "a lower-case letter": r"[a-z]", "a digit": r"[0-9]"}


def checked_password(text: str, field: str = "password") -> str:
    """Return `text`; raise `InvalidInput` that names `field` and says what is missing."""
    if not text.strip():
        raise MalformedRequest("must not be blank", field=field)
    if not SHORTEST <= len(text) <= LONGEST:
        raise InvalidInput(f"must have {SHORTEST} to {LONGEST} characters", field=field)
    if not _PRINTABLE.fullmatch(text):
        raise InvalidInput("must be printable ASCII without spaces", field=field)
    missing = [name for name, pattern in _NEEDED.items() if not re.search(pattern, text)]
    if missing:
        raise InvalidInput(f"must have {', '.join(missing)}", field=field)
    return text


def new_password() -> str:
    """Make a password of 142 random bits that satisfies the rule: letters and digits."""
    alphabet = string.ascii_letters + string.digits
    while True:
        made = "".join(secrets.choice(alphabet) for _ in range(24))
        if all(re.search(pattern, made) for pattern in _NEEDED.values()):
            return made
