"""Alarms and states in MongoDB: `alarms` and `alarm_states`.

A state, its alarms and their events are written in one transaction, so each change happens once,
even if several processes decide it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
from pymongo import DeleteOne, ReplaceOne, UpdateOne

from libs.common.bus import Outbox, OutboxEntry, Wakeups
from libs.common.clock import now_ms
from libs.common.contracts.events import AlarmChange
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Document, Mongo, Session, list_distinct_values
from services.device.alarms.alarm_queries import AlarmQueries
from services.device.alarms.decision import SETTLING_MS, AlarmTransition, differs_in_progress_only
from services.device.alarms.events import build_alarm_event
from services.device.alarms.model import (
    ALARMS_TOPIC,
    Alarm,
    Rule,
    State,
    from_document,
    new_state,
    to_document,
)
from services.device.things.device_store import DeviceStore
from services.device.things.model import DeviceWithPresence, event_profile

BY_RULE, BY_FLOW = "RULE", "FLOW"
"""Who cleared an alarm, if not a user."""
HAS_VALUE_CONDITION: Document = {
    "$or": [{field: {"$exists": True}} for field in ("value", "checkpoint.value", "points.value")]
}
MAX_DOCUMENTS_PER_TRANSACTION = 200
"""Maximum alarms that users change, or states that are written, in one transaction."""
MAX_TRANSITIONS_PER_TRANSACTION = 250
"""Maximum alarm transitions in one transaction; one state alone may have more."""
STATE_FIELDS_FOR_INGEST = dict.fromkeys(
    ("tenant", "rule", "generation", "device", "status", "at", "since"), 1
)
"""The fields of a state that ingest needs."""


@dataclass(frozen=True, slots=True)
class StateUpdate:
    """New state of a rule for a device, and the transitions of its alarm."""

    rule: Rule | None
    """None when the state ends."""
    before: State
    after: State | None
    """None deletes the state."""
    changes: Sequence[AlarmTransition] = ()
    is_written: bool = True
    """Whether the state must be written; a new checkpoint alone need not be."""


class AlarmStore:
    """Reads and writes alarms and states."""

    def __init__(
        self, mongo: Mongo, outbox: Outbox, devices: DeviceStore, wakeups: Wakeups
    ) -> None:
        self._mongo = mongo
        self._outbox = outbox
        self.wakeups = wakeups
        self._devices = devices
        self._states = mongo.database["alarm_states"]
        self.collection = self._alarms = mongo.database["alarms"]
        self.queries = AlarmQueries(self._alarms, mongo.direct["alarms"])
        self._ids = IdAllocator(mongo.database, "alarms")

    # States.

    async def apply_if_unchanged(self, decisions: Iterable[StateUpdate]) -> set[str]:
        """Apply the updates of unchanged states and of their alarms; return the states' keys.

        States that another process has changed since they were read must be decided again. A state
        ends when its rule no longer applies to the device.
        """
        settled = set[str]()
        for updates in _split_into_transactions(decisions):

            async def write(
                session: Session, updates: Sequence[StateUpdate] = updates
            ) -> tuple[list[StateUpdate], list[Document]]:
                current = await self._filter_unchanged(updates, session)
                device_ids = {update.before.device for update in current}
                devices = await self._find_devices(device_ids, session)
                return current, await self._write_updates(current, devices, session)

            if any(update.is_written for update in updates):
                current, entries = await self._mongo.transaction(write)
                self.wakeups.notify(ALARMS_TOPIC)
                await self._outbox.publish_stored(entries)
            else:
                current = await self._filter_unchanged(updates)
            settled.update(update.before.id for update in current)
        return settled

    async def end_states(self, states: Iterable[State], *, delete: bool = False) -> None:
        """End states and their alarms.

        States are deleted with `delete`, or if their device does not exist. Without `delete`,
        states become NORMAL, so that processes read the change.
        """
        remaining = {state.id: state for state in states}
        while remaining:
            ended = (StateUpdate(None, old, None if delete else old) for old in remaining.values())
            applied = await self.apply_if_unchanged([*ended])
            remaining = await self.find_states([*remaining.keys() - applied])

    async def delete_for_device(self, device_id: int) -> None:
        """Delete the alarms and states of a deleted device."""
        await self._states.delete_many({"device": device_id})
        await self._alarms.delete_many({"device": device_id})

    async def list_rules_with_values(self, device_id: int) -> list[int]:
        """Return ids of rules whose alarms or states of a device hold a value."""
        query = {"device": device_id, "rule": {"$exists": True}, **HAS_VALUE_CONDITION}
        rows = [
            row
            for collection in (self._alarms, self._states)
            for row in await collection.find(query, {"rule": 1}).to_list(None)
        ]
        return list({row["rule"] for row in rows})

    async def erase_values(self, device_id: int, except_states: Sequence[str]) -> bool:
        """Remove values of a device's alarms and states, except of `except_states`.

        Return whether there were any.
        """
        other = {"device": device_id, "rule": {"$exists": True}, **HAS_VALUE_CONDITION}
        removal = {"$unset": {"value": "", "checkpoint.value": "", "points": ""}}
        keys = {"$nin": list(except_states)}
        alarms = await self._alarms.update_many({**other, "state": keys}, removal)
        states = await self._states.update_many({**other, "_id": keys}, removal)
        return bool(alarms.modified_count or states.modified_count)

    async def list_active_states(self) -> list[State]:
        """Return `STATE_FIELDS_FOR_INGEST` of the states that are not NORMAL, of all tenants."""
        cursor = self._states.find({"status": {"$ne": "NORMAL"}}, STATE_FIELDS_FOR_INGEST)
        return [from_document(document, State) async for document in cursor]

    async def list_changed_states(self, since: int) -> list[State]:
        """Return `STATE_FIELDS_FOR_INGEST` of the states changed since a time (ms)."""
        cursor = self._states.find({"changed": {"$gte": since}}, STATE_FIELDS_FOR_INGEST)
        return [from_document(document, State) for document in await cursor.to_list(None)]

    async def list_due_tenants(self, now: int) -> list[str]:
        """Return the tenants of states that are due at `now` (ms)."""
        return await list_distinct_values(self._states, "tenant", {"due": {"$lte": now}})

    async def list_due_states(self, tenant: str, now: int, limit: int) -> list[State]:
        """Return states that are due at `now` (ms), the longest due first."""
        query = {"tenant": tenant, "due": {"$lte": now}}
        cursor = self._states.find(query, sort=[("due", 1)], limit=limit)
        return [from_document(document, State) async for document in cursor]

    async def list_states_of_other_rules(
        self, devices: Sequence[int], rules: Sequence[int]
    ) -> list[State]:
        """Return the states of devices for rules that are not in `rules`."""
        query = {"device": {"$in": list(devices)}, "rule": {"$nin": list(rules)}}
        return [from_document(document, State) async for document in self._states.find(query)]

    async def find_states(self, keys: Sequence[str]) -> dict[str, State]:
        """Return states by key."""
        cursor = self._states.find({"_id": {"$in": list(keys)}})
        return {document["_id"]: from_document(document, State) async for document in cursor}

    async def list_outdated_states(self, rule: Rule, limit: int) -> list[State]:
        """Return up to `limit` states of older generations, or any states of an inactive rule."""
        query: Document = {"rule": rule.id}
        if rule.is_active:
            query["generation"] = {"$lt": rule.generation}
        cursor = self._states.find(query, limit=limit)
        return [from_document(document, State) async for document in cursor]

    async def create_silence_states(self, rule: Rule, devices: Sequence[int], now: int) -> None:
        """Create the states of a silence that begins at `now` (ms), unless a device has one."""
        fresh = [new_state(rule, device) for device in devices]
        for state in fresh:
            state.since, state.due = now, now
        if fresh:
            await self._states.bulk_write(
                [
                    UpdateOne({"_id": state.id}, {"$setOnInsert": to_document(state)}, upsert=True)
                    for state in fresh
                ],
                ordered=False,
            )

    async def postpone_states(self, dues: Sequence[tuple[State, int]]) -> None:
        """Set the due times (ms) of states that have not changed since they were read."""
        writes = [
            UpdateOne({"_id": state.id, "revision": state.revision}, {"$set": {"due": due}})
            for state, due in dues
        ]
        if writes:
            await self._states.bulk_write(writes, ordered=False)

    # Alarms, for users.

    async def claim(self, ids: Sequence[int], user: str, name: str, note: str | None) -> int:
        """Claim unclaimed alarms for a user; return how many."""
        changes = {"claimedAt": now_ms(), "claimedBy": user, "claimedName": name}
        if note:
            changes["note"] = note
        return await self._change_alarms(ids, {"claimedAt": None}, changes, "claimed")

    async def clear(self, ids: Sequence[int], user: str, note: str | None) -> int:
        """Clear open alarms by hand; return how many.

        The rule raises the next alarm after a return to normal, or at the next event.
        """
        now = now_ms()
        changes: Document = cleared_fields(now, user)
        if note:
            changes["note"] = note
        return await self._change_alarms(ids, {"open": True}, changes, "cleared")

    async def _change_alarms(
        self, ids: Sequence[int], condition: Document, changes: Document, what: AlarmChange
    ) -> int:
        changed = 0
        for first in range(0, len(ids), MAX_DOCUMENTS_PER_TRANSACTION):
            query = {
                "_id": {"$in": list(ids[first : first + MAX_DOCUMENTS_PER_TRANSACTION])},
                **condition,
            }

            async def change_alarms(session: Session, query: Document = query) -> list[Document]:
                documents = await self._alarms.find(query, session=session).to_list(None)
                alarms = [from_document(document | changes, Alarm) for document in documents]
                alarm_filter = {"_id": {"$in": [alarm.id for alarm in alarms]}}
                await self._alarms.update_many(alarm_filter, {"$set": changes}, session=session)
                if what == "cleared":
                    await self._reset_states_of_cleared(alarms, session)
                devices = await self._find_devices({alarm.device for alarm in alarms}, session)
                entries = [
                    build_alarm_event(alarm, what, event_profile(devices[alarm.device]))
                    for alarm in alarms
                    if alarm.device in devices
                ]
                return await self._outbox.store_entries(entries, session)

            entries = await self._mongo.transaction(change_alarms)
            self.wakeups.notify(ALARMS_TOPIC)
            changed += len(entries)
            await self._outbox.publish_stored(entries)
        return changed

    async def _reset_states_of_cleared(self, alarms: Sequence[Alarm], session: Session) -> None:
        """Remove cleared alarms from their states; states of event rules become NORMAL.

        Readings that have arrived by now raise no other alarm (`State.cleared`).
        """
        state_ids = [alarm.state for alarm in alarms if alarm.state is not None]
        state_filter = {"_id": {"$in": state_ids}}
        open_now = {"alarm": {"$in": [alarm.id for alarm in alarms]}}
        now = now_ms()
        change: Document = {"$unset": {"alarm": ""}, "$inc": {"revision": 1}}
        later = dict.fromkeys(("due", "settles"), now + SETTLING_MS)
        normal = {"status": "NORMAL", "cleared": now, "changed": now, **later}
        momentary = state_filter | open_now | {"momentary": True}
        await self._states.update_many(momentary, change | {"$set": normal}, session=session)
        others = change | {"$set": {"cleared": now, "changed": now}}
        await self._states.update_many(state_filter | open_now, others, session=session)

    async def _filter_unchanged(
        self, decisions: Sequence[StateUpdate], session: Session | None = None
    ) -> list[StateUpdate]:
        """Return the updates whose states have not changed since they were read."""
        query = {"_id": {"$in": [decision.before.id for decision in decisions]}}
        cursor = self._states.find(query, {"revision": 1}, session=session)
        revisions = {document["_id"]: document.get("revision", 0) async for document in cursor}
        return [
            decision
            for decision in decisions
            if revisions.get(decision.before.id, 0) == decision.before.revision
        ]

    async def _find_devices(
        self, ids: Iterable[int], session: Session
    ) -> dict[int, DeviceWithPresence]:
        devices = await self._devices.presence.find_by_ids(set(ids), session)
        return {device.id: device for device in devices}

    async def _write_updates(
        self,
        decisions: Sequence[StateUpdate],
        devices: Mapping[int, DeviceWithPresence],
        session: Session,
    ) -> list[Document]:
        """Write states, their alarms and events; return the outbox documents."""
        lasting = [
            _end_unless_applies(decision, devices.get(decision.before.device))
            for decision in decisions
        ]
        alarm_ids = [update.before.alarm for update in lasting if update.changes]
        cursor = self._alarms.find({"_id": {"$in": alarm_ids}, "open": True}, session=session)
        documents = await cursor.to_list(None) if any(alarm_ids) else []
        alarms = {document["_id"]: from_document(document, Alarm) for document in documents}
        new, entries, now = dict[int, Alarm](), list[OutboxEntry](), now_ms()
        writes: list[ReplaceOne[Document] | DeleteOne] = []
        for update in (update for update in lasting if update.is_written):
            before = update.before
            device, alarm_id = devices.get(before.device), before.alarm
            for change in update.changes:
                alarm = alarms.get(alarm_id) or new.get(alarm_id or 0)
                alarm_id = None
                if change.raised and update.rule is not None and device is not None:
                    alarm = await self._new_alarm(update.rule, before, change, device)
                    new[alarm.id], alarm_id = alarm, alarm.id
                elif alarm is not None:
                    alarm.open, alarm.cleared_at = False, max(change.at, alarm.raised_at)
                    alarm.cleared_by, alarm.ended_at = BY_RULE, datetime.now(UTC)
                if alarm is not None and device is not None:
                    what: AlarmChange = "raised" if alarm.open else "cleared"
                    entries.append(build_alarm_event(alarm, what, event_profile(device)))
            if update.after is None:
                writes.append(DeleteOne({"_id": before.id}))
                continue
            changed = before.changed if differs_in_progress_only(before, update.after) else now
            after = msgspec.structs.replace(
                update.after, alarm=alarm_id, changed=changed, revision=before.revision + 1
            )
            writes.append(ReplaceOne({"_id": after.id}, to_document(after), upsert=True))
        if new:
            await self._alarms.insert_many(map(to_document, new.values()), session=session)
        over = [
            UpdateOne({"_id": alarm.id}, {"$set": cleared_fields(alarm.cleared_at, BY_RULE)})
            for alarm in alarms.values()
            if alarm.cleared_at is not None
        ]
        if over:
            await self._alarms.bulk_write(over, session=session)
        if writes:
            await self._states.bulk_write(writes, session=session)
        return await self._outbox.store_entries(entries, session)

    async def _new_alarm(
        self, rule: Rule, state: State, change: AlarmTransition, device: DeviceWithPresence
    ) -> Alarm:
        return Alarm(
            id=await self._ids.allocate(),
            tenant=rule.tenant,
            rule=rule.id,
            state=state.id,
            device=device.id,
            device_name=device.name,
            integration=device.integration,
            severity=rule.severity,
            content=rule.name,
            value=change.value,
            raised_at=change.at,
        )


def _split_into_transactions(decisions: Iterable[StateUpdate]) -> Iterator[list[StateUpdate]]:
    """Split updates into transactions; yield the updates of each transaction."""
    part, changes = list[StateUpdate](), 0
    for decision in decisions:
        changes += len(decision.changes)
        is_full = len(part) == MAX_DOCUMENTS_PER_TRANSACTION
        if part and (is_full or changes > MAX_TRANSITIONS_PER_TRANSACTION):
            yield part
            part, changes = [], len(decision.changes)
        part.append(decision)
    if part:
        yield part


def _end_unless_applies(update: StateUpdate, device: DeviceWithPresence | None) -> StateUpdate:
    """Return the update, or the end of the state when its rule does not apply."""
    if not update.is_written:
        return update
    if update.rule and device and update.rule.applies_to(device.tenant, device.id, device.model):
        return update
    before, now = update.before, now_ms()
    changes = [] if before.alarm is None else [AlarmTransition(raised=False, at=now)]
    after = msgspec.structs.replace(
        before, status="NORMAL", due=None, settles=None, checkpoint=None, points=[], begun=now
    )
    return StateUpdate(None, before, after if device and update.after else None, changes)


def cleared_fields(at: int, by: str) -> Document:
    """Return the fields of an alarm that `by` clears at `at` (ms)."""
    return {"open": False, "clearedAt": at, "clearedBy": by, "endedAt": datetime.now(UTC)}
