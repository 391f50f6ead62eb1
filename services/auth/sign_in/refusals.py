"""Refusals of `POST /oauth2/token`: 401 whatever the reason, `{OAuth code}:{text}` (notes, 2)."""

from typing import Literal

from libs.common.errors import Unauthenticated

Code = Literal["invalid_request", "invalid_client", "invalid_grant", "unsupported_grant_type"]


def refused(code: Code, text: str, field: str | None = None) -> Unauthenticated:
    """The refusal with an error code of RFC 6749, section 5.2."""
    return Unauthenticated(f"{code}:{text}", field=field)
