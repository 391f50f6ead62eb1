"""What a password must be like; existing consoles refuse a log-in with any other."""

import re
import secrets
import string

from libs.common.errors import InvalidInput, MalformedRequest

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
