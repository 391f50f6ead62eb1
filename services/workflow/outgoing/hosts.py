"""Checks of outgoing hosts, and common errors of deliveries."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from libs.common.http.outgoing import (
    AddressBlocked,
    describe_blocked_host,
    resolve_outgoing_addresses,
)
from services.workflow.errors import NodeFailed


async def check_host(
    host: str, port: int, allowed_networks: tuple[str, ...], seconds: float
) -> None:
    """Raise `NodeFailed` unless the host is public or in an allowed network."""
    try:
        async with asyncio.timeout(seconds):
            await resolve_outgoing_addresses(host, port, allowed_networks)
    except TimeoutError as error:
        raise NodeFailed(f"the lookup of host {host} timed out") from error
    except AddressBlocked as error:
        raise NodeFailed(describe_blocked_host(host)) from error
    except (OSError, UnicodeError) as error:  # UnicodeError for an invalid name
        raise NodeFailed(f"host {host} was not found: {error!s:.200}") from error


@asynccontextmanager
async def translate_delivery_errors(
    host: str, seconds: float, what: str, *errors: type[Exception]
) -> AsyncIterator[None]:
    """Run a delivery to `host` for at most `seconds`; raise `NodeFailed` if it fails.

    The delivery fails if it takes longer, if the host is not allowed, or if the block raises
    `OSError`, `ValueError` or one of `errors` of the client library. `what` is its subject, such
    as "the email".
    """
    failures: tuple[type[Exception], ...] = (*errors, OSError, ValueError)
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise NodeFailed(f"{host} did not respond in time") from error
    except AddressBlocked as error:
        raise NodeFailed(describe_blocked_host(host)) from error
    except failures as error:
        raise NodeFailed(f"{host} did not accept {what}: {error!s:.200}") from error
