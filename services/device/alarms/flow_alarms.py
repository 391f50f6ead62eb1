"""Alarms of flows: `rpc.device.change_alarm`, and collection `alarm_steps`."""

from datetime import UTC, datetime

from pymongo import ReturnDocument

from libs.common.bus import Outbox, OutboxEntry, RpcServer
from libs.common.clock import now_ms
from libs.common.contracts.flows import (
    LONGEST_CONTENT,
    LONGEST_KEY,
    ChangeAlarm,
    ChangeAlarmAnswer,
)
from libs.common.errors import InvalidInput, NotFound
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Collection, Document, Mongo, Session
from services.device.alarms.events import build_alarm_event
from services.device.alarms.model import Alarm, from_document, to_document
from services.device.alarms.store import BY_FLOW, cleared_fields
from services.device.members.directory import EntityDirectory
from services.device.things.device_store import DeviceStore
from services.device.things.model import DeviceWithPresence, event_profile

MAX_FLOW_ALARMS = 100
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

    async def change(self, request: ChangeAlarm, device_id: int) -> ChangeAlarmAnswer:
        """Raise or clear an alarm of a flow; each step takes effect once.

        Raises `NotFound` when the device does not exist, `InvalidInput` when it has too many
        alarms.
        """
        step = {"_id": f"{request.tenant}.{request.step}"}

        async def change_once(session: Session) -> tuple[ChangeAlarmAnswer, list[Document]]:
            done = await self._steps.find_one(step, session=session)
            if done is not None:
                return ChangeAlarmAnswer(done["alarm"], done["changed"]), []
            present = await self._devices.presence.find_by_ids([device_id], session)
            if not present:
                raise NotFound("the device does not exist", field="entity")
            change = self._raise_alarm if request.raised else self._clear_alarm
            answer, entries = await change(request, present[0], session)
            note = {"alarm": answer.alarm_id, "changed": answer.changed, "at": datetime.now(UTC)}
            await self._steps.insert_one(step | note, session=session)
            return answer, await self._outbox.store_entries(entries, session)

        answer, entries = await self._mongo.transaction(change_once)
        await self._outbox.publish_stored(entries)
        return answer

    async def _raise_alarm(
        self, request: ChangeAlarm, device: DeviceWithPresence, session: Session
    ) -> tuple[ChangeAlarmAnswer, list[OutboxEntry]]:
        open_alarms = {"tenant": request.tenant, "device": device.id, "open": True}
        document = await self._alarms.find_one(open_alarms | {"key": request.key}, session=session)
        if document is not None:
            return ChangeAlarmAnswer(document["_id"]), []
        keyed = open_alarms | {"key": {"$exists": True}}
        maximum = MAX_FLOW_ALARMS
        if await self._alarms.count_documents(keyed, limit=maximum, session=session) >= maximum:
            text = f"the device has {maximum} open alarms of flows, the maximum"
            raise InvalidInput(text, field="key", code="alarm_number_limitation")
        alarm = Alarm(
            id=await self._ids.allocate(),
            tenant=request.tenant,
            flow=request.flow_id,
            key=request.key,
            device=device.id,
            device_name=device.name,
            integration=device.integration,
            severity=request.severity,
            content=request.content,
            raised_at=now_ms(),
        )
        await self._alarms.insert_one(to_document(alarm), session=session)
        entry = build_alarm_event(alarm, "raised", event_profile(device), request.hops)
        return ChangeAlarmAnswer(alarm.id, changed=True), [entry]

    async def _clear_alarm(
        self, request: ChangeAlarm, device: DeviceWithPresence, session: Session
    ) -> tuple[ChangeAlarmAnswer, list[OutboxEntry]]:
        document = await self._alarms.find_one_and_update(
            {"tenant": request.tenant, "device": device.id, "open": True, "key": request.key},
            {"$set": cleared_fields(now_ms(), BY_FLOW)},
            return_document=ReturnDocument.AFTER,
            session=session,
        )
        if document is None:
            return ChangeAlarmAnswer(), []
        alarm = from_document(document, Alarm)
        entry = build_alarm_event(alarm, "cleared", event_profile(device), request.hops)
        return ChangeAlarmAnswer(alarm.id, changed=True), [entry]


class FlowAlarms:
    """Raises and clears alarms for flows; the caller has checked the grants of the flow."""

    def __init__(self, store: FlowAlarmStore, directory: EntityDirectory) -> None:
        self._store = store
        self._directory = directory

    def offer(self, rpc: RpcServer) -> None:
        """Register the handler of `rpc.device.change_alarm`."""
        rpc.offer("change_alarm", ChangeAlarm, self.change)

    async def change(self, request: ChangeAlarm) -> ChangeAlarmAnswer:
        """Raise an alarm unless it is open, or clear an open alarm; a dry run changes nothing.

        Raises `InvalidInput`, also for a device with too many alarms, and `NotFound`.
        """
        for field, text, maximum in (
            ("key", request.key, LONGEST_KEY),
            ("content", request.content if request.raised else "-", LONGEST_CONTENT),
        ):
            if not 0 < len(text) <= maximum:
                raise InvalidInput(f"must be 1 to {maximum} characters", field=field)
        entities = await self._directory.find_by_keys(request.tenant, [request.entity])
        if request.entity not in entities:
            raise NotFound(f"entity {request.entity} does not exist", field="entity")
        thing = entities[request.entity].thing
        if not thing.device:
            raise InvalidInput(f"{request.entity} is not an entity of a device", field="entity")
        if request.dry_run:
            return ChangeAlarmAnswer()
        return await self._store.change(request, thing.id)
