"""Endless jobs that the store may keep waiting."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from libs.common.errors import ThingwayError
from libs.common.store.mongo import StoreError

log = logging.getLogger(__name__)


async def repeated(work: Callable[[], Awaitable[None]], seconds: float, late: str) -> None:
    """Do `work` for ever with pauses; `late` is what the log says while the store is away."""
    while True:
        try:
            await work()
        except (StoreError, ThingwayError) as error:
            log.warning("%s: %s", late, error)
        await asyncio.sleep(seconds)
