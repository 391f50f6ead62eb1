"""Judges where something would go, for who does not send it now."""

import asyncio

from libs.common.http.outgoing import AddressRefused, not_public, outgoing_addresses
from services.workflow.errors import NodeFailed


async def check_host(host: str, port: int, allowed: tuple[str, ...], seconds: float) -> None:
    """Raise `NodeFailed` for a host that is unknown, or that may not be called."""
    try:
        async with asyncio.timeout(seconds):
            await outgoing_addresses(host, port, allowed)
    except TimeoutError as error:
        raise NodeFailed(f"{host} is not found in time") from error
    except AddressRefused as error:
        raise NodeFailed(not_public(host)) from error
    except (OSError, UnicodeError) as error:  # the latter for a name that no host can have
        raise NodeFailed(f"{host} is not found: {error!s:.200}") from error
