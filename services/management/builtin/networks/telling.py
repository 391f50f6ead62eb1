"""Tells the platform what a network server has said."""

import asyncio
import logging
from collections.abc import Sequence
from itertools import groupby

from libs.common.contracts.frames import TellDownlink, TellLink, ToldFrame
from libs.common.errors import InvalidInput, ThingwayError, TooLarge, TooManyRequests
from libs.common.integrations import IntegrationThings
from services.management.builtin.networks.heard import Heard
from services.management.builtin.networks.state import State
from services.management.builtin.networks.store import NetworkStore

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
"""Seconds between two tries while the platform is away."""
SERVER_ERROR = 500


class Teller:
    """Tells what the server of one tenant has said."""

    def __init__(
        self, tenant: str, things: IntegrationThings, store: NetworkStore, state: State
    ) -> None:
        self._tenant = tenant
        self._things = things
        self._store = store
        self._state = state

    async def tell_patiently(self, heard: Sequence[Heard]) -> None:
        """Tell all of it, however long the platform is away; told twice, it counts once."""
        pause = FIRST_PAUSE
        while True:
            try:
                await self.tell(heard)
            except ThingwayError as error:
                log.info("what the server of %s said waits: %s", self._tenant, error)
                self._state.failed(f"the platform does not take uplinks: {error.text}")
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                if pause > FIRST_PAUSE:
                    self._state.up()
                return

    async def tell(self, heard: Sequence[Heard]) -> None:
        """Tell all of it, in its order; what is refused is noted.

        Raises what says that the platform is away: then it is not known what was taken.
        """
        for frames, group in groupby(heard, lambda one: isinstance(one.told, ToldFrame)):
            if frames:
                await self._frames(list(group))
            else:
                for one in group:
                    await self._other(one)

    async def _frames(self, heard: Sequence[Heard]) -> None:
        told = [one.told for one in heard if isinstance(one.told, ToldFrame)]
        try:
            refused = (await self._things.frames(told)).refused
        except (InvalidInput, TooLarge) as error:
            if len(heard) == 1:
                self._state.refuse(told[0].identifier, error.text)
                return
            half = len(heard) // 2
            await self._frames(heard[:half])
            await self._frames(heard[half:])
            return
        reasons = {one.index: one.reason for one in refused}
        for index, reason in reasons.items():
            self._state.refuse(told[index].identifier, reason)
        taken = [one for index, one in enumerate(heard) if index not in reasons]
        self._state.taken({one.told.identifier for one in taken}, len(taken))
        routes = {one.told.identifier: one.route for one in taken if one.route is not None}
        await self._store.learn(self._tenant, routes)

    async def _other(self, heard: Heard) -> None:
        told = heard.told
        try:
            if isinstance(told, TellLink):
                await self._things.link(told)
            elif isinstance(told, TellDownlink):
                await self._downlink(told)
        except ThingwayError as error:
            if error.status >= SERVER_ERROR or isinstance(error, TooManyRequests):
                raise
            self._state.refuse(told.identifier, error.text)

    async def _downlink(self, told: TellDownlink) -> None:
        """What became of one of ours; the server's other downlinks are nothing to us."""
        if told.downlink:
            name = await self._store.downlink(self._tenant, told.downlink)
        else:
            name = await self._store.end_oldest(self._tenant, told.identifier)
        if name is not None:
            told.downlink = name
            await self._things.downlink(told)
