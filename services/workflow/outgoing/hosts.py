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


async def check_host(host: str, port: int, allowed: tuple[str, ...], seconds: float) -> None:
    """Raise `NodeFailed` for an unknown or not allowed host."""
    try:
        async with asyncio.timeout(seconds):
            await resolve_outgoing_addresses(host, port, allowed)
    except TimeoutError as error:
        raise NodeFailed(f"the lookup of host {host} timed out") from error
    except AddressBlocked as error:
        raise NodeFailed(describe_blocked_host(host)) from error
    except (OSError, UnicodeError) as error:  # UnicodeError for an invalid name
        raise NodeFailed(f"host {host} was not found: {error!s:.200}") from error


@asynccontextmanager
async def limit_delivery(
    host: str, seconds: float, what: str, *errors: type[Exception]
) -> AsyncIterator[None]:
    """Wrap a limit_delivery to a host, of at most `seconds`.

    Raises `NodeFailed` on a timeout, for a host that is not allowed, and when the block raises one
    of the `errors` of a library, `OSError` or `ValueError`.
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
