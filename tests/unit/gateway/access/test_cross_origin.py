"""Which pages of other origins may call, and what their browsers are told."""

from typing import Any

import pytest

from libs.common.settings import SettingsInvalid
from services.gateway.access.cross_origin import AllowedOrigins

PAGE = b"https://console.example.com"


async def told(setting: str, origin: bytes | None) -> list[tuple[bytes, bytes]]:
    """The fields that an answer gets."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope: Any = {"headers": [(b"host", b"a")] + ([(b"origin", origin)] if origin else [])}
    tell = AllowedOrigins(setting).add_headers_on_send(scope, send)
    await tell({"type": "http.response.start", "status": 200, "headers": []})
    await tell({"type": "http.response.body", "body": b""})
    return list(sent[0]["headers"])


async def test_a_named_origin_is_named_and_may_use_logins() -> None:
    """The answer is for this origin alone, and caches are told that others get another."""
    fields = dict(await told("https://a.example.com, https://console.example.com", PAGE))
    assert fields[b"access-control-allow-origin"] == PAGE
    assert fields[b"access-control-allow-credentials"] == b"true"
    assert b"Location" in fields[b"access-control-expose-headers"]
    assert fields[b"vary"] == b"Origin"


@pytest.mark.parametrize(
    "origin", [b"https://evil.example.com", PAGE + b".evil.com", b"null", None]
)
async def test_other_origins_get_no_cors_headers(origin: bytes | None) -> None:
    """They get `Vary: Origin` only."""
    assert await told(PAGE.decode(), origin) == [(b"vary", b"Origin")]


async def test_anybody_may_call_without_logins() -> None:
    """`*` never comes with the browser's own credentials."""
    fields = dict(await told("*", PAGE))
    assert fields[b"access-control-allow-origin"] == b"*"
    assert b"access-control-allow-credentials" not in fields
    both = dict(await told(f"*, {PAGE.decode()}", PAGE))
    assert both[b"access-control-allow-credentials"] == b"true"
    assert both[b"access-control-allow-origin"] == PAGE


def test_off_as_settings_come() -> None:
    """Then nothing is added to answers."""
    assert not AllowedOrigins().on
    assert not AllowedOrigins().allows(PAGE)


@pytest.mark.parametrize(
    "text", ["console.example.com", "https://a.com/", "https://a.com/x", "null", "https://a:b@c.de"]
)
def test_an_invalid_origin_is_rejected_at_the_start(text: str) -> None:
    """No browser sends such an `Origin`, so the setting is a mistake."""
    with pytest.raises(SettingsInvalid, match="THINGWAY_ALLOWED_ORIGINS"):
        AllowedOrigins(text)
