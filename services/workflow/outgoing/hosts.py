"""Where something goes: judged, and delivered with one meaning of what fails."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from libs.common.http.outgoing import AddressRefused, describe_blocked_host, outgoing_addresses
from services.workflow.errors import NodeFailed


async def check_host(host: str, port: int, allowed: tuple[str, ...], seconds: float) -> None:
    """Raise `NodeFailed` for a host that is unknown, or that may not be called."""
    try:
        async with asyncio.timeout(seconds):
            await outgoing_addresses(host, port, allowed)
    except TimeoutError as error:
        raise NodeFailed(f"{host} is not found in time") from error
    except AddressRefused as error:
        raise NodeFailed(describe_blocked_host(host)) from error
    except (OSError, UnicodeError) as error:  # the latter for a name that no host can have
        raise NodeFailed(f"{host} is not found: {error!s:.200}") from error


@asynccontextmanager
async def delivery(
    host: str, seconds: float, what: str, *errors: type[Exception]
) -> AsyncIterator[None]:
    """Deliver something to a host in at most `seconds`.

    Raises `NodeFailed` when that takes longer, the host may not be called, or the block raises one
    of the `errors` of a library, `OSError` or `ValueError`.
    """
    failures: tuple[type[Exception], ...] = (*errors, OSError, ValueError)
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise NodeFailed(f"{host} did not answer in time") from error
    except AddressRefused as error:
        raise NodeFailed(describe_blocked_host(host)) from error
    except failures as error:
        raise NodeFailed(f"{host} did not take {what}: {error!s:.200}") from error
