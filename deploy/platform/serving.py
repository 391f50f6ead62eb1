"""Whether a service serves."""

import asyncio

import aiohttp

_PAUSE_SECONDS = 0.05
_PROBE_TIMEOUT = aiohttp.ClientTimeout(total=2)
_OK = 200


async def until_serving(base_url: str) -> None:
    """Return when `base_url/readyz` answers 200; the caller bounds the time."""
    async with aiohttp.ClientSession(timeout=_PROBE_TIMEOUT) as session:
        while True:
            if await is_serving(session, base_url):
                return
            await asyncio.sleep(_PAUSE_SECONDS)


async def is_serving(session: aiohttp.ClientSession, base_url: str) -> bool:
    """Whether `base_url/readyz` answers 200 now."""
    try:
        async with session.get(f"{base_url}/readyz") as answer:
            return answer.status == _OK
    except (aiohttp.ClientError, TimeoutError):
        return False
