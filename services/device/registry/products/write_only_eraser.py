"""Deletes stored values of properties that are write-only now (decision 0044).

Such values were stored before an import made their property write-only, or by an older version. The
record of a thing notes the TSL content under which it was processed. So the work continues after a
crash, and a device that follows another version is processed again. Readers hide such values
meanwhile.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, get_args

import msgspec
from nats.errors import Error as NatsError
from nats.js.errors import APIError
from pymongo import DeleteOne, UpdateOne

from libs.common.bus import DEAD, Bus
from libs.common.bus.stored_messages import delete_messages
from libs.common.bus.subjects import (
    alarm_event,
    dead_uplink_subject,
    device_event,
    task_event,
    thing_event,
)
from libs.common.contracts.events import AlarmChange, Dead
from libs.common.scheduling.turns import TenantSteps, take_turns
from libs.common.store.mongo import Collection, Document
from libs.common.things import internal_sn
from libs.common.tsl import Tsl
from services.device.alarms.service import AlarmValueEraser
from services.device.commands.store import CommandStore
from services.device.lorawan.frame_store import FrameStore
from services.device.lorawan.redecode_service import RedecodeStore
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.partitions import MAX_KEY_PART, Partitions, history_key
from services.device.telemetry.retention import throttled
from services.device.things.device_store import DeviceStore
from services.device.things.specifications import TslStore
from services.device.things.thing_store import ThingStore

log = logging.getLogger(__name__)

CONCURRENT_TENANTS = 2
"""Tenants whose values are deleted concurrently."""
SEARCH_INTERVAL_SECONDS = 300.0
"""Seconds between two searches for things with values to delete."""
DEVICES_PER_BATCH = 50
"""Devices that are processed together."""
ROWS_PER_WRITE = 500
"""Records of history that are changed together."""
MAX_READ_MESSAGES = 20_000
"""Maximum messages of a stream that are read for one thing."""
ALARM_CHANGES = get_args(AlarmChange)

PropertyValues = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class WriteOnlyEraser:
    """Deletes write-only values that are stored; run by the lease holder."""

    bus: Bus
    devices: DeviceStore
    thing_store: ThingStore
    tsls: TslStore
    partitions: Partitions
    frames: FrameStore
    latest: LatestValues
    commands: CommandStore
    redecodes: RedecodeStore
    alarms: AlarmValueEraser

    async def run(self) -> None:
        """Process tenants until cancelled."""
        await take_turns(
            "erasing",
            CONCURRENT_TENANTS,
            self.list_tenants,
            self.erase_values_of_tenant,
            SEARCH_INTERVAL_SECONDS,
        )

    async def list_tenants(self) -> set[str]:
        """Return the tenants with things that may have values to delete."""
        return {
            *await self.tsls.list_tenants_with_write_only(),
            *await self.thing_store.list_tenants_with_write_only_values(),
        }

    async def erase_values_of_tenant(self, tenant: str) -> TenantSteps:
        """Delete values of a tenant's things that were not processed under their current TSL."""
        for model, version, content in await self.tsls.list_with_write_only(tenant):
            tsl = await self.tsls.find_or_generic(tenant, model, version)
            while devices := await self.devices.queries.list_with_write_only_values(
                tenant, model, version, content, DEVICES_PER_BATCH
            ):
                for device_id, sn in devices:
                    async with throttled():
                        subjects = [device_event(tenant, device_id, "reported")]
                        await self._erase_values_of_thing(tenant, device_id, sn, tsl, subjects)
                    yield
                ids = [device_id for device_id, _ in devices]
                await self.redecodes.remove_differences(tenant, model, ids)
                await self.devices.reported_state.mark_write_only_values_erased(ids, content)
        for document in await self.thing_store.list_with_write_only_values(tenant):
            thing = self.thing_store.build_stored_thing(document)
            if thing.tsl.conceals:
                subjects = [thing_event(tenant, thing.id, "reported")]
                await self._erase_values_of_thing(
                    tenant, thing.id, internal_sn(thing.id), thing.tsl, subjects
                )
            await self.thing_store.mark_write_only_values_erased(document)
            yield

    async def _erase_values_of_thing(
        self, tenant: str, thing_id: int, sn: str, tsl: Tsl, subjects: Iterable[str]
    ) -> None:
        """Delete the values of one thing everywhere; idempotent."""
        erased = await self.latest.erase_write_only(thing_id, tsl.readable)
        erased |= await self._erase_from_history(thing_id, tsl)
        changed = await self.commands.write_only.conceal(thing_id, tsl)
        alarms = await self.alarms.erase_write_only(thing_id, tsl)
        if not (erased or changed or alarms):
            return
        log.info("thing %d: deleted stored values of write-only properties", thing_id)
        try:
            for subject in subjects:
                await self._erase_events(subject, lambda raw: _message_has_write_only(raw, tsl))
            await self._erase_messages(
                DEAD, dead_uplink_subject(sn), lambda raw: _dead_has_write_only(raw, tsl)
            )
            for change in ALARM_CHANGES if alarms else ():
                subject = alarm_event(tenant, thing_id, change)
                await self._erase_events(subject, _alarm_has_value)
            for command_id in changed:
                subject = task_event(tenant, command_id, "finished")
                await self._erase_events(subject, lambda raw: True)
        except (NatsError, APIError, TimeoutError) as error:
            log.warning(
                "thing %d: messages of streams remain until they expire: %r", thing_id, error
            )

    async def _erase_from_history(self, thing_id: int, tsl: Tsl) -> bool:
        erased = False
        for week in await self.partitions.collections():
            erased |= await self._erase_from_week(week, thing_id, tsl)
        return erased

    async def _erase_from_week(self, week: Collection, thing_id: int, tsl: Tsl) -> bool:
        """Delete values of a week of history, and the frames that reported them.

        Returns whether there were any.
        """
        holds = [{f"p.{path}": {"$exists": True}} for path in tsl.write_only_paths()]
        after, last = history_key(thing_id, 0, 0), history_key(thing_id, MAX_KEY_PART, MAX_KEY_PART)
        erased = False
        while True:
            query: Document = {"_id": {"$gte": after, "$lte": last}, "$or": holds}
            rows = await week.find(query, sort=[("_id", 1)], limit=ROWS_PER_WRITE).to_list()
            if not rows:
                return erased
            erased = True
            await week.bulk_write([_row_update(row, tsl.readable(row["p"])) for row in rows])
            await self.frames.drop_content([bytes(row["_id"]) for row in rows])
            after = bytes(rows[-1]["_id"]) + b"\0"

    async def _erase_events(self, subject: str, holds: Callable[[bytes], bool]) -> None:
        for stream in (await self.bus.read_partitions()).streams:
            await self._erase_messages(stream, subject, holds)

    async def _erase_messages(
        self, stream: str, subject: str, holds: Callable[[bytes], bool]
    ) -> None:
        """Delete the messages of a subject for which `holds` returns True."""
        await delete_messages(self.bus, stream, subject, holds, MAX_READ_MESSAGES)


def _row_update(row: Document, readable: PropertyValues) -> UpdateOne | DeleteOne:
    if not readable:
        return DeleteOne({"_id": row["_id"]})
    return UpdateOne({"_id": row["_id"]}, {"$set": {"p": readable}})


class _PropertiesMessage(msgspec.Struct):
    properties: PropertyValues


def _message_has_write_only(raw: bytes, tsl: Tsl) -> bool:
    """Return whether a message holds write-only properties; True if it is invalid."""
    try:
        properties = msgspec.json.decode(raw, type=_PropertiesMessage).properties
    except (ValueError, RecursionError):
        return True
    return tsl.readable(properties) != properties


def _alarm_has_value(raw: bytes) -> bool:
    """Return whether the event of an alarm has a value."""
    return msgspec.json.decode(raw).get("value") is not None


def _dead_has_write_only(raw: bytes, tsl: Tsl) -> bool:
    """Return whether an entry of `DEAD` has or may have write-only properties."""
    dead = msgspec.json.decode(raw, type=Dead)
    return dead.base64 or _message_has_write_only(dead.payload.encode(), tsl)
