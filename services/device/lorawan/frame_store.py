"""Frames in MongoDB, and the recognition of repeated frames.

Documents are `{_id, i, at, f?, c?, w?, h?}`. `_id` is the key of the frame's report in history, and
`i` the binary identity. `at` is the time of expiry, and `f` the JSON of `Frame`. `c` holds the
versions of codec and TSL that decoded the frame. `w` holds the reason of a rejection in whole or in
part, and `h` the keys of past readings. For a device without data storage, only `_id`, `i` and `at`
are stored. A frame with a write-only value has no `f`.

A frame is identified by device, session and counter (its name), and by a lap. A device that is
activated by personalization (ABP) may restart its counter in the same session. A frame with the
same name that arrives more than a day later is therefore another frame, in the next lap.
"""

import struct
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from datetime import timedelta
from hashlib import blake2b
from typing import NamedTuple

import msgspec
from pymongo import UpdateMany, UpdateOne

from libs.common.clock import from_ms
from libs.common.contracts.frames import Frame
from libs.common.store.mongo import Document, Mongo, Session, build_page_stages, read_rows
from services.device.telemetry.batch import KeptFrame
from services.device.telemetry.partitions import DAY_MS, KEY_FORMAT, keys_between
from services.device.telemetry.uplink import Uplink
from services.device.things.deleted_things import ThingDataStore

_NAME_FORMAT = struct.Struct(">Q8sI")
_LAP_FORMAT = struct.Struct(">H")
MAX_COPY_INTERVAL_MS = DAY_MS
"""Maximum time between two copies of a frame."""


def frame_name(frame: KeptFrame) -> bytes:
    """Return device, session and counter of a frame as bytes."""
    session = blake2b(frame.frame.session.encode(), digest_size=8).digest()
    return _NAME_FORMAT.pack(frame.thing.id, session, frame.frame.counter)


def frame_identity(name: bytes, lap: int) -> bytes:
    """Return the identity of a frame: its name, and the lap of its frame counter."""
    return name + _LAP_FORMAT.pack(lap)


class StoredFrame(NamedTuple):
    """Identity and key of a frame in MongoDB."""

    identity: bytes
    key: bytes

    @property
    def name(self) -> bytes:
        """Return device, session and counter of the frame as bytes."""
        return self.identity[: _NAME_FORMAT.size]


class CountedFrame(NamedTuple):
    """The key, counter and time of a frame, for finding gaps."""

    key: bytes
    ts: int
    """When it was received, ms."""
    session: bytes
    counter: int


def parse_counted_frame(key: bytes, name: bytes) -> CountedFrame:
    """Return key, time, session and counter of a frame from its key and name."""
    _, session, counter = _NAME_FORMAT.unpack(name[: _NAME_FORMAT.size])
    return CountedFrame(key, KEY_FORMAT.unpack(key)[1], session, counter)


def identity_bounds(thing_id: int, session: bytes, first: int, last: int) -> tuple[bytes, bytes]:
    """Return bounds of identities with counters from `first` to `last`, in all laps."""
    low, high = (_NAME_FORMAT.pack(thing_id, session, counter) for counter in (first, last))
    return low + _LAP_FORMAT.pack(0), high + _LAP_FORMAT.pack(2**16 - 1)


def split_repeated(
    frames: Iterable[KeptFrame], stored: Iterable[StoredFrame]
) -> tuple[list[KeptFrame], list[Uplink]]:
    """Return the new frames with their laps, and the uplinks that repeat a new or stored frame.

    A stored frame of the same uplink is not a repetition: the uplink was delivered again.
    """
    known_frames: dict[bytes, list[tuple[int, int, bytes]]] = {}
    for entry in stored:
        (lap,) = _LAP_FORMAT.unpack(entry.identity[_NAME_FORMAT.size :])
        ts = KEY_FORMAT.unpack(entry.key)[1]
        known_frames.setdefault(entry.name, []).append((lap, ts, entry.key))
    new_frames, repeated = list[KeptFrame](), list[Uplink]()
    for frame in frames:
        key, ts = frame.key, frame.ts
        laps = known_frames.setdefault(frame_name(frame), [])
        near = next((other for other in laps if other[2] == key), None) or next(
            (other for other in laps if abs(other[1] - ts) <= MAX_COPY_INTERVAL_MS), None
        )
        if near is not None and near[2] != key:
            repeated.append(frame.uplink)
            continue
        lap = near[0] if near else max((other[0] for other in laps), default=-1) + 1
        if near is None:
            laps.append((lap, ts, key))
        new_frames.append(frame if lap == frame.lap else msgspec.structs.replace(frame, lap=lap))
    return new_frames, repeated


FRAMES_COLLECTION = "frames"
REDECODE_PROJECTION = ["f", "w", "h"]
"""Stored fields of a frame that re-decoding needs."""
IDENTITY_DAYS = 2
"""Maximum days that the identity of a frame is kept if its device has no data storage."""


def build_frame_document(frame: KeptFrame) -> Document:
    """Return the document of a frame."""
    keeps = frame.thing.data_storage
    days = frame.days if keeps else min(frame.days, IDENTITY_DAYS)
    document: Document = {
        "_id": frame.key,
        "i": frame_identity(frame_name(frame), frame.lap),
        "at": from_ms(frame.uplink.received) + timedelta(days=days),
    }
    if keeps:
        document["c"] = frame.stamp
        if not frame.conceals:
            document["f"] = frame.uplink.payload
        if frame.reason:
            document["w"] = frame.reason
        if frame.past:
            document["h"] = [key for key, _ in frame.past_readings()]
    return document


class FrameStore(ThingDataStore):
    """Reads, changes and deletes stored frames; ingest inserts them."""

    def __init__(self, mongo: Mongo) -> None:
        self._frames = mongo.database[FRAMES_COLLECTION]
        self._direct = mongo.direct[FRAMES_COLLECTION]

    async def find_newest(self, thing_id: int) -> Frame | None:
        """Return the newest stored frame of a device, or None."""
        query = {"_id": keys_between(thing_id), "f": {"$exists": True}}
        cursor = self._frames.find(query, {"f": 1})
        async for row in cursor.sort("_id", -1).limit(1):
            return decode_frame(row)
        return None

    async def find_stored(self, frames: Sequence[KeptFrame]) -> list[StoredFrame]:
        """Return the stored frames of all laps that have the name of one of `frames`."""
        frames_found: list[StoredFrame] = []
        names, lap = {frame_name(frame) for frame in frames}, 0
        while names:
            identities = [frame_identity(name, lap) for name in names]
            rows = self._frames.find({"i": {"$in": identities}}, {"i": 1})
            stored_frames = [StoredFrame(bytes(row["i"]), bytes(row["_id"])) async for row in rows]
            frames_found += stored_frames
            names, lap = {frame.name for frame in stored_frames}, lap + 1
        return frames_found

    async def list_counted(
        self, first: bytes, last: bytes, limit: int, *, newest: bool = False
    ) -> list[CountedFrame]:
        """Return up to `limit` frames from key `first` to `last`, the oldest or `newest` first."""
        query, order = {"_id": {"$gte": first, "$lte": last}}, -1 if newest else 1
        rows = self._frames.find(query, {"i": 1}, sort=[("_id", order)], limit=limit)
        return [parse_counted_frame(bytes(row["_id"]), bytes(row["i"])) async for row in rows]

    async def find_by_counters(
        self, thing_id: int, session: bytes, first: int, last: int
    ) -> list[CountedFrame]:
        """Return frames of a session with counters from `first` to `last`."""
        low, high = identity_bounds(thing_id, session, first, last)
        rows = self._frames.find({"i": {"$gte": low, "$lte": high}}, {"i": 1})
        return [parse_counted_frame(bytes(row["_id"]), bytes(row["i"])) async for row in rows]

    def iterate_before(
        self, first: bytes, key: bytes, limit: int
    ) -> AsyncGenerator[Document, None]:
        """Yield up to `limit` frames with content, newest first.

        Their keys are at least `first` and below `key`.
        """
        query = {"_id": {"$gte": first, "$lt": key}, "f": {"$exists": True}}
        return read_rows(self._direct, build_page_stages(query, [("_id", -1)], limit=limit))

    async def find_outdated_or_rejected(
        self, stamp: str, after: bytes, last: bytes, limit: int
    ) -> list[Document]:
        """Return up to `limit` frames that were rejected or not decoded by the versions `stamp`.

        Their keys are above `after` and at most `last`.
        """
        otherwise = [{"c": {"$ne": stamp}}, {"w": {"$exists": True}}]
        query = {"_id": {"$gt": after, "$lte": last}, "f": {"$exists": True}, "$or": otherwise}
        rows = self._direct.find(
            query, REDECODE_PROJECTION, sort=[("_id", 1)], limit=limit, batch_size=limit
        )
        return await rows.to_list(None)

    async def filter_past_keys(
        self, thing_id: int, stamp: str, keys: Collection[bytes]
    ) -> set[bytes]:
        """Return the keys of all past readings in frames that contain any of `keys`.

        Only frames that the versions `stamp` decoded count. The result may exceed `keys`.
        """
        query = {"_id": keys_between(thing_id), "h": {"$in": list(keys)}, "c": stamp}
        return {bytes(key) async for row in self._direct.find(query, {"h": 1}) for key in row["h"]}

    async def filter_frame_times(self, thing_id: int, times: Iterable[int]) -> set[int]:
        """Return those of `times` (ms) at which the device sent a frame."""
        frame_times = set[int]()
        for ts in times:
            if await self._direct.find_one({"_id": keys_between(thing_id, ts, ts)}, {"_id": 1}):
                frame_times.add(ts)
        return frame_times

    async def drop_content(self, keys: Collection[bytes]) -> None:
        """Delete the content of frames and keep their identity."""
        await self._frames.update_many({"_id": {"$in": list(keys)}}, {"$unset": {"f": ""}})

    async def apply_updates(
        self, changes: Sequence[UpdateMany | UpdateOne], session: Session
    ) -> None:
        """Apply updates to stored frames."""
        if changes:
            await self._frames.bulk_write(changes, ordered=False, session=session)

    async def delete_thing_data(self, thing_id: int, session: Session | None = None) -> None:
        """Delete the frames of a device."""
        await self._frames.delete_many({"_id": keys_between(thing_id)}, session=session)


_decode_frame_json = msgspec.json.Decoder(Frame).decode


def decode_frame(document: Document) -> Frame:
    """Return the frame of a document."""
    return _decode_frame_json(document["f"])
