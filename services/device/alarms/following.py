"""Keeps a process's index of rules and states in step with the collections.

It asks for what was written since it asked last, when it is used. A change stream would tell
sooner, and has MongoDB read all that ingest writes, once for each stream and process: with two of
them ingest lost a third of its rate. What a report is judged by may so be `PERIOD` old; it is made
good by the second look that each change of a state has (`deciding.SETTLING`).
"""

import asyncio
import time

from libs.common.clock import now_ms
from services.device.alarms.index import RuleIndex
from services.device.alarms.rules_store import RuleStore
from services.device.alarms.store import AlarmStore

PERIOD = 0.5
"""Seconds for which an answer counts as that of now."""
OVERLAP = 3_000
"""ms that are asked for again: clocks differ, and transactions take their time."""


class FollowedRules:
    """An index that is in step whenever it is handed out."""

    def __init__(self, rules: RuleStore, alarms: AlarmStore) -> None:
        self._index = RuleIndex()
        self._rules = rules
        self._alarms = alarms
        self._asked: int | None = None
        """ms."""
        self._until = 0.0
        """Until when (monotonic) the index counts as in step."""
        self._lock = asyncio.Lock()

    async def index(self) -> RuleIndex:
        """The index as of now; raise `StoreError` when that cannot be known."""
        async with self._lock:
            if time.monotonic() >= self._until:
                asked = now_ms()
                await (self._load() if self._asked is None else self._refresh(self._asked))
                self._asked, self._until = asked, time.monotonic() + PERIOD
                self._index.forget_doubts(time.monotonic())
        return self._index

    async def _refresh(self, asked: int) -> None:
        for rule in await self._rules.changed(asked - OVERLAP):
            self._index.put(rule)
        for state in await self._alarms.changed(asked - OVERLAP):
            self._index.know(state)

    async def _load(self) -> None:
        for rule in await self._rules.all():
            self._index.put(rule)
        for state in await self._alarms.not_normal():
            self._index.know(state)
