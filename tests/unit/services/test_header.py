"""The signed header at every service: what was stolen or forged is of no use."""

import base64
import time
from collections.abc import Iterator

import httpx
import pytest

from libs.common.http.guards import GuardedOperation, list_guarded_operations
from libs.common.identity import (
    PRINCIPAL_HEADER,
    HeaderSigner,
    Principal,
    PrincipalKind,
    generate_keys,
)
from libs.common.identity.header import HEADER_LIFETIME_SECONDS
from tests.apps import SERVICES


def stranger_to(operation: GuardedOperation) -> Principal:
    """A caller whom the guard of an operation refuses, once it is known who calls."""
    assert operation.guard is not None
    kind = (
        PrincipalKind.USER
        if operation.guard.kind is PrincipalKind.APPLICATION
        else PrincipalKind.APPLICATION
    )
    return Principal(kind=kind, tenant="default", subject="1")


def with_a_bit_flipped(value: str) -> Iterator[str]:
    """The header value with another bit flipped in each byte of claims and signature."""
    parts = [base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in value.split(".")]
    for at, part in enumerate(parts):
        for index in range(len(part)):
            changed = bytearray(part)
            changed[index] ^= 1 << index % 8
            spelt = [*parts[:at], bytes(changed), *parts[at + 1 :]]
            yield ".".join(base64.urlsafe_b64encode(one).rstrip(b"=").decode() for one in spelt)


@pytest.mark.parametrize("service", SERVICES)
async def test_stolen_or_forged_headers_are_refused(service: str) -> None:
    """A header that is too old, that has a bit flipped, or of another key, is nobody's: 401."""
    private, public = generate_keys()
    app = SERVICES[service](public)
    operation = next(one for one in list_guarded_operations(app) if one.guard is not None)
    caller = stranger_to(operation)
    good = HeaderSigner(private).sign(caller)
    now = time.time()
    refused = [
        HeaderSigner(private, lambda: now - HEADER_LIFETIME_SECONDS).sign(caller),
        HeaderSigner(generate_keys()[0]).sign(caller),
        good.partition(".")[0] + ".",
        "",
        *with_a_bit_flipped(good),
    ]
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:

        async def status(value: str) -> int:
            path = operation.path.replace("{", "").replace("}", "")
            headers = {PRINCIPAL_HEADER: value} if value else {}
            return (await http.request(operation.method, path, headers=headers)).status_code

        assert await status(good) == 403
        assert {await status(value) for value in refused} == {401}
        assert await status(good) == 403
