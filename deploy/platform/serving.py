"""Whether a service serves."""

import asyncio

import aiohttp

from libs.common.tls import trusting

_PAUSE_SECONDS = 0.05
_PROBE_TIMEOUT = aiohttp.ClientTimeout(total=2)
_OK = 200


async def until_serving(base_url: str, ca_file: str = "") -> None:
    """Return when `base_url/readyz` answers 200; the caller bounds the time."""
    async with probing(ca_file) as session:
        while True:
            if await is_serving(session, base_url):
                return
            await asyncio.sleep(_PAUSE_SECONDS)


def probing(ca_file: str) -> aiohttp.ClientSession:
    """Make the client that asks; `https://` services prove themselves to `ca_file`."""
    connector = aiohttp.TCPConnector(ssl=trusting(ca_file))
    return aiohttp.ClientSession(timeout=_PROBE_TIMEOUT, connector=connector)


async def is_serving(session: aiohttp.ClientSession, base_url: str) -> bool:
    """Whether `base_url/readyz` answers 200 now."""
    try:
        async with session.get(f"{base_url}/readyz") as answer:
            return answer.status == _OK
    except (aiohttp.ClientError, TimeoutError):
        return False
