"""Alarms of flows: `rpc.device.change_alarm`, and collection `alarm_steps`."""

from datetime import UTC, datetime

from pymongo import ReturnDocument

from libs.common.bus import Outbox, OutboxEntry, RpcServer
from libs.common.clock import now_ms
from libs.common.contracts.flows import (
    LONGEST_CONTENT,
    LONGEST_KEY,
    ChangeAlarm,
    ChangedAlarm,
)
from libs.common.errors import InvalidInput, NotFound
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Collection, Document, Mongo, Session
from services.device.alarms.events import alarm_changed
from services.device.alarms.model import Alarm, from_document, to_document
from services.device.alarms.store import BY_FLOW, cleared_fields
from services.device.members.directory import EntityDirectory
from services.device.things.device_store import DeviceStore
from services.device.things.model import PresentDevice, profile_of

MOST_OF_FLOWS = 100
"""Maximum open alarms of a device that flows have raised."""


class FlowAlarmStore:
    """Writes alarms of flows into the collection that `AlarmStore` opens."""

    def __init__(
        self, mongo: Mongo, outbox: Outbox, devices: DeviceStore, alarms: Collection
    ) -> None:
        self._mongo = mongo
        self._outbox = outbox
        self._devices = devices
        self._alarms = alarms
        self._steps = mongo.database["alarm_steps"]
        self._ids = IdAllocator(mongo.database, "alarms")

    async def change(self, wanted: ChangeAlarm, device_id: int) -> ChangedAlarm:
        """Raise or clear an alarm of a flow; each step takes effect once.

        Raises `NotFound` when the device does not exist, `InvalidInput` when it has too many
        alarms.
        """
        step = {"_id": f"{wanted.tenant}.{wanted.step}"}

        async def change_once(session: Session) -> tuple[ChangedAlarm, list[Document]]:
            done = await self._steps.find_one(step, session=session)
            if done is not None:
                return ChangedAlarm(done["alarm"], done["changed"]), []
            present = await self._devices.presence.find_by_ids([device_id], session)
            if not present:
                raise NotFound("the device does not exist", field="entity")
            change = self._raise_keyed if wanted.raised else self._clear_keyed
            answer, entries = await change(wanted, present[0], session)
            note = {"alarm": answer.alarm_id, "changed": answer.changed, "at": datetime.now(UTC)}
            await self._steps.insert_one(step | note, session=session)
            return answer, await self._outbox.add(entries, session)

        answer, entries = await self._mongo.transaction(change_once)
        await self._outbox.relay(entries)
        return answer

    async def _raise_keyed(
        self, wanted: ChangeAlarm, device: PresentDevice, session: Session
    ) -> tuple[ChangedAlarm, list[OutboxEntry]]:
        mine = {"tenant": wanted.tenant, "device": device.id, "open": True}
        found = await self._alarms.find_one(mine | {"key": wanted.key}, session=session)
        if found is not None:
            return ChangedAlarm(found["_id"]), []
        keyed = mine | {"key": {"$exists": True}}
        most = MOST_OF_FLOWS
        if await self._alarms.count_documents(keyed, limit=most, session=session) >= most:
            text = f"the device has {most} open alarms of flows, the maximum"
            raise InvalidInput(text, field="key", code="alarm_number_limitation")
        alarm = Alarm(
            id=await self._ids.allocate(),
            tenant=wanted.tenant,
            flow=wanted.flow_id,
            key=wanted.key,
            device=device.id,
            device_name=device.name,
            integration=device.integration,
            severity=wanted.severity,
            content=wanted.content,
            raised_at=now_ms(),
        )
        await self._alarms.insert_one(to_document(alarm), session=session)
        entry = alarm_changed(alarm, "raised", profile_of(device), wanted.hops)
        return ChangedAlarm(alarm.id, changed=True), [entry]

    async def _clear_keyed(
        self, wanted: ChangeAlarm, device: PresentDevice, session: Session
    ) -> tuple[ChangedAlarm, list[OutboxEntry]]:
        found = await self._alarms.find_one_and_update(
            {"tenant": wanted.tenant, "device": device.id, "open": True, "key": wanted.key},
            {"$set": cleared_fields(now_ms(), BY_FLOW)},
            return_document=ReturnDocument.AFTER,
            session=session,
        )
        if found is None:
            return ChangedAlarm(), []
        alarm = from_document(found, Alarm)
        entry = alarm_changed(alarm, "cleared", profile_of(device), wanted.hops)
        return ChangedAlarm(alarm.id, changed=True), [entry]


class FlowAlarms:
    """Raises and clears alarms for flows, whose grants were checked before."""

    def __init__(self, store: FlowAlarmStore, directory: EntityDirectory) -> None:
        self._store = store
        self._directory = directory

    def offer(self, rpc: RpcServer) -> None:
        """Answer `rpc.device.change_alarm`."""
        rpc.offer("change_alarm", ChangeAlarm, self.change)

    async def change(self, wanted: ChangeAlarm) -> ChangedAlarm:
        """Raise an alarm unless it is open, or clear an open alarm.

        Raises `InvalidInput`, also for a device with too many alarms, and `NotFound`.
        """
        for field, text, most in (
            ("key", wanted.key, LONGEST_KEY),
            ("content", wanted.content if wanted.raised else "-", LONGEST_CONTENT),
        ):
            if not 0 < len(text) <= most:
                raise InvalidInput(f"must be 1 to {most} characters", field=field)
        found = await self._directory.find_by_keys(wanted.tenant, [wanted.entity])
        if wanted.entity not in found:
            raise NotFound(f"entity {wanted.entity} does not exist", field="entity")
        thing = found[wanted.entity].thing
        if not thing.device:
            raise InvalidInput(f"{wanted.entity} is not an entity of a device", field="entity")
        if wanted.dry_run:
            return ChangedAlarm()
        return await self._store.change(wanted, thing.id)
