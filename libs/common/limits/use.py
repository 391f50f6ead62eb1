"""What a tenant uses at the moment: every process is asked for its part, and the parts are added.

Who answers is not known beforehand, so whoever asks waits for `PATIENCE` and takes what has come.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from uuid import uuid4

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout

from libs.common.bus import Bus
from libs.common.contracts.limits import AskUse
from libs.common.decoding import INVALID_JSON
from libs.common.errors import Unavailable
from libs.common.scheduling import FairScheduler, LaneFull
from libs.common.store.mongo import StoreError

log = logging.getLogger(__name__)

ASK = "use.ask"
ANSWERS = "use.answer"
PATIENCE = 0.3
"""Seconds in which a process answers."""
WORKERS = 8
"""Questions that a process asks or answers at a time: a count in a database may take seconds."""

Use = Mapping[str, int | float]
"""By the name of the limit, in camelCase: `{"requests": 3}`."""
Part = Callable[[AskUse], Awaitable[Use]]
"""Tells what a process knows of the use of a tenant and of a principal of it."""

_ask = msgspec.json.Decoder(AskUse).decode
_use = msgspec.json.Decoder(dict[str, int | float]).decode


async def report_use(bus: Bus, part: Part, queue: str = "") -> None:
    """Answer with this process's part from now on.

    With `queue` one process of that name answers for all: for what is counted in a database.
    """

    scheduler = FairScheduler("use", WORKERS)

    async def answer(message: Msg, asked: AskUse) -> None:
        try:
            await message.respond(msgspec.json.encode(await part(asked)))
        except (NatsError, StoreError) as error:
            log.warning("what is in use could not be told: %r", error)

    async def take(message: Msg) -> None:
        try:
            asked = _ask(message.data)
            scheduler.start(asked.tenant, partial(answer, message, asked))
        except (*INVALID_JSON, LaneFull) as error:
            log.warning("what is in use is not told: %r", error)

    await bus.client.subscribe(ASK, queue, cb=take)


class UseQuestions:
    """Asks the processes; a question costs `PATIENCE`."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._scheduler = FairScheduler("questions about use", WORKERS)

    async def ask(self, wanted: AskUse) -> Use:
        """The sum of all parts; raise `TooManyRequests` and `Unavailable`."""
        try:
            async with self._scheduler.slot(wanted.tenant):
                return await self._sum(msgspec.json.encode(wanted))
        except NatsError as error:
            raise Unavailable(f"the bus does not take questions: {error!r}") from error

    async def _sum(self, question: bytes) -> Use:
        loop, client = asyncio.get_running_loop(), self._bus.client
        answers = f"{ANSWERS}.{uuid4().hex}"
        subscription = await client.subscribe(answers)
        together: Counter[str] = Counter()
        try:
            await client.publish(ASK, question, reply=answers)
            end = loop.time() + PATIENCE
            while (left := end - loop.time()) > 0:
                try:
                    message = await subscription.next_msg(left)
                except NatsTimeout:
                    break
                if message.data:  # the server answers with nothing when nobody is there
                    together.update(_use(message.data))
        finally:
            await subscription.unsubscribe()
        return together
