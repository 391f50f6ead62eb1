"""Timers in MongoDB: `timers`, one for each flow that runs and begins with one.

`{_id: flow id, tenant, flow, settings, anchor, due, claim}`: `flow` is the JSON of `Deployed`,
`settings` that of the timer's settings, times are ms. `due` is null when the timer has ended.
`claim` is `{by, until}`, the replica that takes care of what is due; it is only there so that
replicas do not do the same work: what keeps a due time from making two runs is the run's cause.
"""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import msgspec
from pymongo import UpdateOne

from libs.common.store.mongo import Database, Session, ids_in_turns
from services.workflow.nodes.parameters import read
from services.workflow.nodes.simple_timer import UTC, SimpleTimerParameters, TimerSettings
from services.workflow.runs.model import Cause, Deployed

CLAIMED_MS = 30_000
"""How long a claim holds when its replica does not come back to it."""

_decode = msgspec.json.Decoder(Deployed).decode


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """The timer of a flow that runs."""

    flow: Deployed
    anchor: int
    """When it was set, ms: intervals count from it."""
    due: int
    """When its next run is due, ms."""

    @property
    def settings(self) -> TimerSettings:
        """What it was set to."""
        return settings_of(self.flow)

    @property
    def entered(self) -> dict[str, object]:
        """What the flow is entered with."""
        zone = self.settings.timezone or UTC
        return {"executionEpochSecond": self.due // 1000, "timezone": zone}

    @property
    def cause(self) -> Cause:
        """A due time makes one run, however many replicas and attempts there are."""
        return Cause(kind="TIMER", key=f"t-{self.due}")


def settings_of(flow: Deployed) -> TimerSettings:
    """The settings of a flow that begins with a timer; they were checked."""
    return read(SimpleTimerParameters, flow.parameters).timer_settings


class TimerStore:
    """Reads and writes timers."""

    def __init__(self, database: Database) -> None:
        self._timers = database["timers"]

    async def get(self, flow_id: int, session: Session) -> tuple[bytes, int, int | None] | None:
        """Settings, anchor and due time of a flow's timer."""
        found = await self._timers.find_one({"_id": flow_id}, session=session)
        return None if found is None else (found["settings"], found["anchor"], found["due"])

    async def put(self, flow: Deployed, anchor: int, due: int | None, session: Session) -> None:
        """Set the timer of a flow."""
        fields = {
            "tenant": flow.tenant,
            "flow": msgspec.json.encode(flow),
            "settings": encoded_settings(flow),
            "anchor": anchor,
            "due": due,
        }
        key = {"_id": flow.flow_id}
        change = {"$set": fields, "$unset": {"claim": ""}}
        await self._timers.update_one(key, change, upsert=True, session=session)

    async def remove(self, tenant: str, flow_id: int, session: Session) -> None:
        """Drop the timer of a flow."""
        await self._timers.delete_one({"_id": flow_id, "tenant": tenant}, session=session)

    async def claim(self, now: int, most: int) -> list[Timer]:
        """Timers that are due and that no other replica takes care of now, tenants in turn."""
        free = {"due": {"$lte": now}, **_free(now)}
        ids = await ids_in_turns(self._timers, free, "due", most)
        if not ids:
            return []
        token = uuid4().hex
        claim = {"by": token, "until": now + CLAIMED_MS}
        await self._timers.update_many({"_id": {"$in": ids}, **free}, {"$set": {"claim": claim}})
        mine = self._timers.find({"_id": {"$in": ids}, "claim.by": token})
        return [
            Timer(flow=_decode(row["flow"]), anchor=row["anchor"], due=row["due"])
            async for row in mine
            if row["due"] is not None
        ]

    async def advance(self, timers: Sequence[tuple[Timer, int | None]]) -> None:
        """Set when timers are due next, unless they were set anew meanwhile."""
        updates = [
            UpdateOne(
                {"_id": timer.flow.flow_id, "due": timer.due, "anchor": timer.anchor},
                {"$set": {"due": due}, "$unset": {"claim": ""}},
            )
            for timer, due in timers
        ]
        await self._timers.bulk_write(updates, ordered=False)

    async def next_due(self, now: int) -> int | None:
        """When the next timer is due that no replica takes care of now."""
        query = {"due": {"$type": "number"}, **_free(now)}
        found = self._timers.find(query, {"due": 1}).sort("due", 1)
        rows = await found.to_list(1)
        return rows[0]["due"] if rows else None


def _free(now: int) -> dict[str, Any]:
    return {"claim.until": {"$not": {"$gt": now}}}


def encoded_settings(flow: Deployed) -> bytes:
    """The settings, to be compared."""
    return msgspec.json.encode(settings_of(flow))


async def create_indexes(database: Database) -> None:
    """Make what the queries above need."""
    await database["timers"].create_index("due")
