"""Validation of email addresses, nicknames and passwords."""

import re
import secrets
import string

from libs.common.errors import InvalidInput, MalformedRequest
from libs.common.http.console import parse_name

SHORTEST_EMAIL, LONGEST_EMAIL = 5, 255

_DOMAIN_LABEL_PATTERN = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_EMAIL_PATTERN = re.compile(
    rf"[A-Za-z0-9.!#$%&'*+/=?^_`{{|}}~-]{{1,64}}@{_DOMAIN_LABEL_PATTERN}(?:\.{_DOMAIN_LABEL_PATTERN})+"
)
"""HTML's valid email address (https://html.spec.whatwg.org/#valid-e-mail-address), with a dot
in its domain."""


def validate_email(text: str) -> str:
    """Return the stripped address; raise `InvalidInput` for `email`."""
    email = text.strip()
    if not email:
        raise MalformedRequest("must not be blank", field="email")
    if not SHORTEST_EMAIL <= len(email) <= LONGEST_EMAIL:
        raise InvalidInput(
            f"must have {SHORTEST_EMAIL} to {LONGEST_EMAIL} characters", field="email"
        )
    if not _EMAIL_PATTERN.fullmatch(email):
        raise InvalidInput("must be an email address", field="email")
    return email


def validate_nickname(text: str) -> str:
    """Return the stripped nickname; raise `InvalidInput` for `nickname`."""
    return parse_name(text, "nickname", 127)


SHORTEST_PASSWORD, LONGEST_PASSWORD = 8, 63
_PRINTABLE_ASCII = re.compile(r"[!-~]+")
_PATTERN_BY_REQUIRED_CHARACTER = {
    "an upper-case letter": r"[A-Z]",
    "a lower-case letter": r"[a-z]",
    "a digit": r"[0-9]",
}


def validate_password(text: str, field: str = "password") -> str:
    """Return `text`; raise `InvalidInput` for `field` with the violated rule."""
    if not text.strip():
        raise MalformedRequest("must not be blank", field=field)
    if not SHORTEST_PASSWORD <= len(text) <= LONGEST_PASSWORD:
        raise InvalidInput(
            f"must have {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters", field=field
        )
    if not _PRINTABLE_ASCII.fullmatch(text):
        raise InvalidInput("must be printable ASCII without spaces", field=field)
    missing = [
        name
        for name, pattern in _PATTERN_BY_REQUIRED_CHARACTER.items()
        if not re.search(pattern, text)
    ]
    if missing:
        raise InvalidInput(f"must have {', '.join(missing)}", field=field)
    return text


def generate_password() -> str:
    """Return a random password of 142 bits that satisfies the rules."""
    alphabet = string.ascii_letters + string.digits
    while True:
        made = "".join(secrets.choice(alphabet) for _ in range(24))
        if all(re.search(pattern, made) for pattern in _PATTERN_BY_REQUIRED_CHARACTER.values()):
            return made
