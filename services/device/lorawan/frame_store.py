"""Frames in MongoDB, and which frames are the same.

`{_id, i, at, f?, c?, w?, h?}`: `_id` is the key that the frame's report has in history, `i` the
binary identity, `at` when it goes, `f` the JSON of `Frame` as it came, `c` what it was read with,
`w` why it or a part of it was refused, and `h` the keys of what it remembered. One of a device that
keeps no data has its identity only, and one that holds a write-only value has no `f`.

What a frame is, and which frames are the same one. No I/O.

A frame is (device, session, counter). The counter of a device that joins by its keys (ABP) may
begin anew in the same session: what comes more than a day away from its namesake is another frame,
of another lap.
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
from libs.common.store.mongo import Document, Mongo, Session, page_stages, read_rows
from services.device.telemetry.batch import KeptFrame
from services.device.telemetry.partitions import DAY_MS, KEY, keys_between
from services.device.telemetry.uplink import Uplink
from services.device.things.deleted_things import ThingDataStore

_NAME = struct.Struct(">Q8sI")
_LAP = struct.Struct(">H")
SAME_MS = DAY_MS
"""How far apart copies of a frame may be received."""


def name_of(frame: KeptFrame) -> bytes:
    """The device, session and counter of a frame."""
    session = blake2b(frame.frame.session.encode(), digest_size=8).digest()
    return _NAME.pack(frame.thing.id, session, frame.frame.counter)


def identity(name: bytes, lap: int) -> bytes:
    """What no other frame has."""
    return name + _LAP.pack(lap)


class StoredFrame(NamedTuple):
    """A frame that is stored."""

    identity: bytes
    key: bytes

    @property
    def name(self) -> bytes:
        """Its device, session and counter."""
        return self.identity[: _NAME.size]


class CountedFrame(NamedTuple):
    """A frame as its counter tells it."""

    key: bytes
    ts: int
    """When it was received, ms."""
    session: bytes
    counter: int


def counted(key: bytes, name: bytes) -> CountedFrame:
    """The frame with a key and an identity."""
    _, session, counter = _NAME.unpack(name[: _NAME.size])
    return CountedFrame(key, KEY.unpack(key)[1], session, counter)


def names_between(thing_id: int, session: bytes, first: int, last: int) -> tuple[bytes, bytes]:
    """Bounds of the identities of frames with counters from `first` to `last`, of all laps."""
    low, high = (_NAME.pack(thing_id, session, one) for one in (first, last))
    return low + _LAP.pack(0), high + _LAP.pack(2**16 - 1)


def settle(
    frames: Iterable[KeptFrame], stored: Iterable[StoredFrame]
) -> tuple[list[KeptFrame], list[Uplink]]:
    """The frames with their laps, and the uplinks that repeat one of them or of `stored`.

    A stored one of the same uplink is the frame itself, which comes again.
    """
    known: dict[bytes, list[tuple[int, int, bytes]]] = {}
    for one in stored:
        (lap,) = _LAP.unpack(one.identity[_NAME.size :])
        ts = KEY.unpack(one.key)[1]
        known.setdefault(one.name, []).append((lap, ts, one.key))
    kept, repeated = list[KeptFrame](), list[Uplink]()
    for frame in frames:
        key, ts = frame.key, frame.ts
        laps = known.setdefault(name_of(frame), [])
        near = next((one for one in laps if one[2] == key), None) or next(
            (one for one in laps if abs(one[1] - ts) <= SAME_MS), None
        )
        if near is not None and near[2] != key:
            repeated.append(frame.uplink)
            continue
        lap = near[0] if near else max((one[0] for one in laps), default=-1) + 1
        if near is None:
            laps.append((lap, ts, key))
        kept.append(frame if lap == frame.lap else msgspec.structs.replace(frame, lap=lap))
    return kept, repeated


FRAMES = "frames"
READ = ["f", "w", "h"]
"""What reading again needs of a frame."""
FORGOTTEN = 2
"""Days after which the identity of a frame goes that is not kept."""


def document_of(frame: KeptFrame) -> Document:
    """The document of a frame."""
    keeps = frame.thing.data_storage
    days = frame.days if keeps else min(frame.days, FORGOTTEN)
    document: Document = {
        "_id": frame.key,
        "i": identity(name_of(frame), frame.lap),
        "at": from_ms(frame.uplink.received) + timedelta(days=days),
    }
    if keeps:
        document["c"] = frame.stamp
        if not frame.conceals:
            document["f"] = frame.uplink.payload
        if frame.reason:
            document["w"] = frame.reason
        if frame.past:
            document["h"] = [key for key, _ in frame.remembered()]
    return document


class FrameStore(ThingDataStore):
    """Reads frames; `reports/store.py` writes them. One per process."""

    def __init__(self, mongo: Mongo) -> None:
        self._frames = mongo.database[FRAMES]
        self._direct = mongo.direct[FRAMES]
        """For what reads much."""

    async def newest(self, thing_id: int) -> Frame | None:
        """The newest frame of a device that is kept."""
        query = {"_id": keys_between(thing_id), "f": {"$exists": True}}
        found = self._frames.find(query, {"f": 1})
        async for row in found.sort("_id", -1).limit(1):
            return frame_of(row)
        return None

    async def like(self, frames: Sequence[KeptFrame]) -> list[StoredFrame]:
        """The stored frames with the names of `frames`, of all laps."""
        found: list[StoredFrame] = []
        names, lap = {name_of(frame) for frame in frames}, 0
        while names:
            wanted = [identity(name, lap) for name in names]
            rows = self._frames.find({"i": {"$in": wanted}}, {"i": 1})
            some = [StoredFrame(bytes(row["i"]), bytes(row["_id"])) async for row in rows]
            found += some
            names, lap = {one.name for one in some}, lap + 1
        return found

    async def counters(
        self, first: bytes, last: bytes, limit: int, *, newest: bool = False
    ) -> list[CountedFrame]:
        """Frames with keys from `first` to `last`, kept or not: the oldest, or the `newest`, ones.

        They come in that order.
        """
        query, order = {"_id": {"$gte": first, "$lte": last}}, -1 if newest else 1
        rows = self._frames.find(query, {"i": 1}, sort=[("_id", order)], limit=limit)
        return [counted(bytes(row["_id"]), bytes(row["i"])) async for row in rows]

    async def named(
        self, thing_id: int, session: bytes, first: int, last: int
    ) -> list[CountedFrame]:
        """Frames of a session with counters from `first` to `last`."""
        low, high = names_between(thing_id, session, first, last)
        rows = self._frames.find({"i": {"$gte": low, "$lte": high}}, {"i": 1})
        return [counted(bytes(row["_id"]), bytes(row["i"])) async for row in rows]

    def before(self, first: bytes, key: bytes, limit: int) -> AsyncGenerator[Document, None]:
        """Yield frames with keys from `first` on and below `key`, the newest first."""
        query = {"_id": {"$gte": first, "$lt": key}, "f": {"$exists": True}}
        return read_rows(self._direct, page_stages(query, [("_id", -1)], limit=limit))

    async def unlike(self, stamp: str, after: bytes, last: bytes, limit: int) -> list[Document]:
        """Frames that were read with something else, or refused, beyond `after` up to `last`."""
        otherwise = [{"c": {"$ne": stamp}}, {"w": {"$exists": True}}]
        query = {"_id": {"$gt": after, "$lte": last}, "f": {"$exists": True}, "$or": otherwise}
        rows = self._direct.find(query, READ, sort=[("_id", 1)], limit=limit, batch_size=limit)
        return await rows.to_list(None)

    async def remembered(self, thing_id: int, stamp: str, keys: Collection[bytes]) -> set[bytes]:
        """Those of `keys` that frames of a device give as memories when read with `stamp`."""
        query = {"_id": keys_between(thing_id), "h": {"$in": list(keys)}, "c": stamp}
        return {bytes(key) async for row in self._direct.find(query, {"h": 1}) for key in row["h"]}

    async def heard(self, thing_id: int, times: Iterable[int]) -> set[int]:
        """Those of `times` (ms) that frames of a device have."""
        found = set[int]()
        for ts in times:
            if await self._direct.find_one({"_id": keys_between(thing_id, ts, ts)}, {"_id": 1}):
                found.add(ts)
        return found

    async def drop_bytes(self, keys: Collection[bytes]) -> None:
        """Keep of frames their identity alone, since their bytes must not be read."""
        await self._frames.update_many({"_id": {"$in": list(keys)}}, {"$unset": {"f": ""}})

    async def note(self, changes: Sequence[UpdateMany | UpdateOne], session: Session) -> None:
        """Note of frames what they were read with, and what came of it."""
        if changes:
            await self._frames.bulk_write(changes, ordered=False, session=session)

    async def delete_thing_data(self, thing_id: int, session: Session | None = None) -> None:
        """Delete the frames of a device."""
        await self._frames.delete_many({"_id": keys_between(thing_id)}, session=session)


_read = msgspec.json.Decoder(Frame).decode


def frame_of(document: Document) -> Frame:
    """The frame as it came."""
    return _read(document["f"])
