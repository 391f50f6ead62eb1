"""Connection states in MongoDB: each transition is written with its event."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import msgspec
from pymongo import WriteConcern

from libs.common.bus import Outbox, OutboxEntry
from libs.common.bus.subjects import device_event
from libs.common.clock import now_ms
from libs.common.contracts.events import DeviceConnection
from libs.common.store.mongo import Mongo, Session
from services.device.things.directory import profile_of

CHUNK = 500
"""Devices of one transaction."""
LOCKED_MS = 250
"""How long a report over HTTP waits for the device's record, and a connection with it."""


class PresenceStore:
    """Writes who is online."""

    def __init__(self, mongo: Mongo, outbox: Outbox) -> None:
        self._mongo = mongo
        self._devices = mongo.database["devices"]
        self._heard = mongo.direct["devices"].with_options(write_concern=WriteConcern(1))
        """No thread waits for a record that is locked; a note that is lost comes again."""
        self._outbox = outbox

    async def set_online(self, sns: Collection[str]) -> list[int]:
        """Make devices (SNs in capitals) ONLINE; return the ids of all of them."""
        ids: list[int] = []
        listed = list(sns)
        for first in range(0, len(listed), CHUNK):
            chunk = listed[first : first + CHUNK]
            query = {"snKey": {"$in": chunk}}
            ids += [row["_id"] async for row in self._devices.find(query, {"_id": 1})]
            await self._change({**query, "connectStatus": {"$ne": "ONLINE"}}, "ONLINE")
        return ids

    async def set_offline(self, sns: Collection[str]) -> None:
        """Make devices OFFLINE, but for those that were just heard over HTTP."""
        listed = list(sns)
        for first in range(0, len(listed), CHUNK):
            chunk = listed[first : first + CHUNK]
            await self._change({"snKey": {"$in": chunk}, **self._silent()}, "OFFLINE")

    async def set_others_offline(self, connected: Collection[str]) -> None:
        """Make OFFLINE whoever is ONLINE and neither connected nor heard over HTTP."""
        while True:
            query = {"snKey": {"$nin": list(connected)}, **self._silent()}
            if await self._change(query, "OFFLINE") < CHUNK:
                return

    async def sweep_http(self, connected: Collection[str]) -> None:
        """Make OFFLINE whoever spoke only over HTTP and has fallen silent."""
        over = {"$lte": datetime.now(UTC)}
        query = {"connectStatus": "ONLINE", "httpUntil": over, "snKey": {"$nin": list(connected)}}
        await self._change(query, "OFFLINE")

    async def heard(self, device_id: int, until: datetime) -> None:
        """Note a report over HTTP: ONLINE until then. Raises when the record stays locked."""
        device = await self._heard.find_one_and_update(
            {"_id": device_id},
            {"$max": {"httpUntil": until}},
            {"connectStatus": 1},
            maxTimeMS=LOCKED_MS,
        )
        if device is not None and device.get("connectStatus") != "ONLINE":
            await self._change({"_id": device_id, "connectStatus": {"$ne": "ONLINE"}}, "ONLINE")

    @staticmethod
    def _silent() -> dict[str, Any]:
        """ONLINE, and no report over HTTP keeps it so."""
        over = {"$not": {"$gt": datetime.now(UTC)}}
        return {"connectStatus": "ONLINE", "httpUntil": over}

    async def _change(self, query: dict[str, Any], status: str) -> int:
        """Change what `query` finds, up to a chunk of it; return how many."""
        if await self._devices.find_one(query, {"_id": 1}) is None:
            return 0
        what = status.lower()

        async def work(session: Session) -> tuple[int, list[dict[str, Any]]]:
            found = await self._devices.find(query, session=session).limit(CHUNK).to_list(None)
            if not found:
                return 0, []
            ids = [document["_id"] for document in found]
            await self._devices.update_many(
                {"_id": {"$in": ids}}, {"$set": {"connectStatus": status}}, session=session
            )
            entries = [_entry(document, status, what) for document in found]
            return len(found), await self._outbox.add(entries, session)

        changed, written = await self._mongo.transaction(work)
        await self._outbox.relay(written)
        return changed


def _entry(document: dict[str, Any], status: str, what: str) -> OutboxEntry:
    body = DeviceConnection(
        event_id=uuid4().hex,
        created_at=now_ms(),
        tenant=document["tenant"],
        device=profile_of(document),
        connect_status="ONLINE" if status == "ONLINE" else "OFFLINE",
    )
    subject = device_event(document["tenant"], document["_id"], what)
    return OutboxEntry(subject, msgspec.json.encode(body))
