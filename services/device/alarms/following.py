"""Keeps a process's index of rules and states in step with the collections.

It asks for what was written since it asked last. A change stream would tell sooner, and has MongoDB
read all that ingest writes, once for each stream and process: with two of them ingest lost a third
of its rate. What an event is judged by may so be a second old; it is made good by the second look
that each change of a state has (`deciding.SETTLING`).
"""

import asyncio
import logging

from libs.common.clock import now_ms
from libs.common.store.mongo import StoreError
from services.device.alarms.index import RuleIndex
from services.device.alarms.rules_store import RuleStore
from services.device.alarms.store import AlarmStore

PERIOD = 0.5
"""Seconds between two questions."""
OVERLAP = 3_000
"""ms that are asked for again: clocks differ, and transactions take their time."""

log = logging.getLogger(__name__)


class FollowedRules:
    """An index that is in step while `ready` is set."""

    def __init__(self, rules: RuleStore, alarms: AlarmStore) -> None:
        self.index = RuleIndex()
        self.ready = asyncio.Event()
        self._rules = rules
        self._alarms = alarms
        self._asked = now_ms()

    async def run(self) -> None:
        """Follow for ever."""
        while True:
            try:
                await self._follow()
            except StoreError as error:
                log.warning("alarm rules are not in step: %s", error)
            finally:
                self.ready.clear()
            await asyncio.sleep(PERIOD)

    async def _follow(self) -> None:
        self._asked = now_ms()
        await self._load()
        self.ready.set()
        while True:
            await asyncio.sleep(PERIOD)
            await self.refresh()

    async def refresh(self) -> None:
        """Ask now."""
        since, asked = self._asked - OVERLAP, now_ms()
        for rule in await self._rules.changed(since):
            self.index.put(rule)
        for state in await self._alarms.changed(since):
            self.index.know(state)
        self._asked = asked

    async def _load(self) -> None:
        rules = await self._rules.all()
        for gone in self.index.ids() - {rule.id for rule in rules}:
            self.index.remove(gone)
        for rule in rules:
            self.index.put(rule)
        states = await self._alarms.not_normal()
        self.index.forget_states()
        for state in states:
            self.index.know(state)
