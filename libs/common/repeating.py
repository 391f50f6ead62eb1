"""Endless jobs that wait while what they need is away."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec
from nats.errors import Error as NatsError
from nats.js.errors import APIError

from libs.common.errors import ThingwayError
from libs.common.store.mongo import StoreError
from libs.common.store.redis import RedisError

log = logging.getLogger(__name__)

AWAY = (StoreError, RedisError, NatsError, APIError, ThingwayError, OSError, msgspec.DecodeError)
"""What a job raises while a store, the bus or another service does not answer."""


async def repeat(work: Callable[[], Awaitable[None]], seconds: float, late: str) -> None:
    """Do `work` for ever with pauses; `late` is what the log says while something is away."""
    while True:
        try:
            await work()
        except AWAY as error:
            log.warning("%s: %s", late, str(error)[:500] or repr(error))
        await asyncio.sleep(seconds)
