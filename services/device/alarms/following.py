"""Keeps a process's index of rules and states in step with the collections.

It follows their change streams: what any replica writes is known here milliseconds later. An event
that is judged meanwhile by what was known before is made good by the second look that each change
of a state has (`deciding.SETTLING`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from libs.common.store.mongo import Collection, Document, StoreError
from services.device.alarms.index import RuleIndex
from services.device.alarms.model import Rule, State, read
from services.device.alarms.rules_store import RuleStore
from services.device.alarms.store import AlarmStore

AWAIT_MS = 500
"""How long the server keeps a question for changes open."""
BACKOFF = 0.5
"""Seconds between attempts while the store does not answer."""
REVISED: Sequence[Document] = [
    {
        "$match": {
            "$or": [
                {"operationType": {"$ne": "update"}},
                {"updateDescription.updatedFields.revision": {"$exists": True}},
            ]
        }
    }
]
"""Changes of states, and not that they are looked at later."""

log = logging.getLogger(__name__)


class FollowedRules:
    """An index that is in step once `wait` returns."""

    def __init__(self, rules: RuleStore, alarms: AlarmStore) -> None:
        self.index = RuleIndex()
        self._rules = rules
        self._alarms = alarms
        self._ready = (asyncio.Event(), asyncio.Event())

    async def wait(self) -> None:
        """Return when rules and states are in step."""
        for ready in self._ready:
            await ready.wait()

    async def follow_rules(self) -> None:
        """Follow rules, for ever."""
        await _follow(self._rules.collection, self._load_rules, self._rule, self._ready[0])

    async def follow_states(self) -> None:
        """Follow states, for ever."""
        await _follow(self._alarms.states, self._load_states, self._state, self._ready[1], REVISED)

    async def _load_rules(self) -> None:
        rules = await self._rules.all()
        for gone in self.index.ids() - {rule.id for rule in rules}:
            self.index.remove(gone)
        for rule in rules:
            self.index.put(rule)

    async def _load_states(self) -> None:
        states = await self._alarms.not_normal()
        self.index.forget_states()
        for state in states:
            self.index.know(state)

    def _rule(self, key: int, document: Document | None) -> None:
        if document is None:
            self.index.remove(key)
        else:
            self.index.put(read(document, Rule))

    def _state(self, key: str, document: Document | None) -> None:
        if document is None:
            rule, generation, device = map(int, key.split("."))
            self.index.forget(rule, generation, device)
        else:
            self.index.know(read(document, State))


async def _follow(
    collection: Collection,
    load: Callable[[], Awaitable[None]],
    take: Callable[..., None],
    ready: asyncio.Event,
    changes: Sequence[Document] = (),
) -> None:
    while True:
        try:
            stream = await collection.watch(
                list(changes), full_document="updateLookup", max_await_time_ms=AWAIT_MS
            )
            async with stream:
                await stream.try_next()  # opens it; what it may bring is read below
                await load()
                ready.set()
                async for change in stream:
                    if "documentKey" in change:
                        take(change["documentKey"]["_id"], change.get("fullDocument"))
        except StoreError as error:
            log.warning("alarm rules are not in step: %s", error)
        finally:
            ready.clear()
        await asyncio.sleep(BACKOFF)
